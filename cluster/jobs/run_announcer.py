"""Announces the run to the roles, so that their log lines carry its id.

A thread of its own: a role that does not answer, or answers late, costs the job nothing.
"""

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from cluster.control.actions import END
from cluster.control.client import NoAnswerError, ask
from cluster.control.rules import RUN
from cluster.control.token import own_token
from cluster.engine.membership import Membership
from cluster.inventory import Task

log = logging.getLogger(__name__)

ANSWER_SECONDS = 1.0
ALL_ANSWERS_SECONDS = 4.0
"""For all tasks together: the end of a job waits for it."""
LOOK_SECONDS = 1.0
_MOST_AT_ONCE = 8


class RunAnnouncer:
    """Announces the run to `tasks` when the `with` begins and ends, and to each worker that joins later.

    Without a run's id it announces nothing.
    """

    def __init__(self, tasks: Sequence[Task], run: str) -> None:
        self._tasks, self._run = tasks, run
        self._announced: dict[str, float] = {}
        """When a task that answered had joined; 0 for tasks that join nothing."""
        self._membership: Membership | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep_announcing, name="run", daemon=True)

    def __enter__(self) -> "RunAnnouncer":
        if self._run:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._run:
            self._thread.join()
            self._announce([task for task in self._tasks if task.name in self._announced], END)

    def watch(self, membership: Membership) -> None:
        """Announce the run to each worker that joins from now on: it may be another process than before."""
        self._membership = membership

    def _keep_announcing(self) -> None:
        while not self._end.is_set():
            due = {
                task: joined for task in self._tasks if self._announced.get(task.name) != (joined := self._joined(task))
            }
            heard = self._announce(list(due))
            self._announced |= {task.name: due[task] for task in heard}
            self._end.wait(LOOK_SECONDS)

    def _joined(self, task: Task) -> float:
        worker = self._membership.workers.get(task.index) if self._membership and task.role == "worker" else None
        return worker.joined if worker else 0.0

    def _announce(self, tasks: Sequence[Task], suffix: str = "") -> list[Task]:
        """The tasks that answered."""
        if not tasks:
            return []
        path = f"{RUN}{self._run}{suffix}"
        with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(tasks)), thread_name_prefix="run") as pool:
            end = time.monotonic() + ALL_ANSWERS_SECONDS
            heard = list(pool.map(lambda task: _post(task, path, end - time.monotonic()), tasks))
        return [task for task, ok in zip(tasks, heard, strict=True) if ok]


def _post(task: Task, path: str, seconds: float) -> bool:
    try:
        status = ask(
            task.metrics_address, "POST", path, deadline_seconds=min(ANSWER_SECONDS, seconds), token=own_token()
        ).status
    except NoAnswerError as problem:
        log.debug("%s does not know the run: %s", task.name, problem)
        return False
    if status != HTTPStatus.OK:
        log.debug("%s answers POST %s with status %d: its lines will not name the run", task.name, path, status)
    return True  # asking again would change nothing
