"""Telling the roles which run they work on, so that their logs and ours are one story.

A thread of its own: a role that does not hear, or not at once, costs the job nothing.
"""

import http.client
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from cluster.engine.membership import Membership
from cluster.inventory import Task
from cluster.metrics.runs import END, PREFIX

log = logging.getLogger(__name__)

ANSWER_SECONDS = 1.0
LOOK_SECONDS = 1.0
_MOST_AT_ONCE = 8


class RunAnnouncer:
    """Tells `tasks` of the run at the beginning and the end of the `with`, and again each worker that comes (back).

    Without a run's id nobody is told anything.
    """

    def __init__(self, tasks: Sequence[Task], run: str) -> None:
        self._tasks, self._run = tasks, run
        self._told: dict[str, float] = {}
        """When a task that heard us had joined; 0 for what joins nothing."""
        self._membership: Membership | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep_telling, name="run", daemon=True)

    def __enter__(self) -> "RunAnnouncer":
        if self._run:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._run:
            self._thread.join()
            self._tell([task for task in self._tasks if task.name in self._told], END)

    def watch(self, membership: Membership) -> None:
        """From now on a worker is told whenever it has joined: it may be another process than before."""
        self._membership = membership

    def _keep_telling(self) -> None:
        while not self._end.is_set():
            due = {task: joined for task in self._tasks if self._told.get(task.name) != (joined := self._joined(task))}
            heard = self._tell(list(due))
            self._told |= {task.name: due[task] for task in heard}
            self._end.wait(LOOK_SECONDS)

    def _joined(self, task: Task) -> float:
        worker = self._membership.workers.get(task.index) if self._membership and task.role == "worker" else None
        return worker.joined if worker else 0.0

    def _tell(self, tasks: Sequence[Task], suffix: str = "") -> list[Task]:
        """Those that heard."""
        if not tasks:
            return []
        path = f"{PREFIX}{self._run}{suffix}"
        with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(tasks)), thread_name_prefix="run") as pool:
            heard = list(pool.map(lambda task: _post(task, path), tasks))
        return [task for task, ok in zip(tasks, heard, strict=True) if ok]


def _post(task: Task, path: str) -> bool:
    # Not urllib: a proxy in the environment is none of the cluster's business.
    connection = http.client.HTTPConnection(task.host, task.metrics_port, timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as problem:
        log.debug("%s was not told POST %s: %s", task.name, path, problem)
        return False
    finally:
        connection.close()
    if status != HTTPStatus.OK:
        log.debug("%s answers POST %s with status %d: its lines will not name the run", task.name, path, status)
    return True  # asking again would change nothing
