"""Who looks at a job's status until the job has ended: the page and the history.

One thread looks at the workers, and others write the history, read the roles and serve the page.
The job waits for none of them, but for the disk where an event must not be lost: an epoch, and a
fault that may end this process.
"""

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from cluster.jobs.lifecycle import Job, Watch
from cluster.jobs.roles import RoleReader
from cluster.jobs.run_status import RunStatus
from core.engine.membership import Worker
from core.ground.ports import port_refusal
from core.inventory import Inventory
from core.status import events
from core.status.events import Event, Stamped
from core.status.history import HistoryFile, condensed_events, read_events, sums_of_state
from core.status.parts import Seen
from core.status.state import ENDED, LONGEST_TEXT
from core.status.view import RunView

if TYPE_CHECKING:
    from cluster.pages.server import PageServer

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
WRITE_SECONDS = 1.0
COUNT_SECONDS = 10.0
"""Age of the numbers that a killed coordinator leaves behind, at most."""
PATIENCE_SECONDS = 30.0
"""Pause after the disk took nothing."""
LAST_SECONDS = 5.0
LOOPBACK = "127.0.0.1"

URGENT = (events.EpochEnded, events.StoppedEarly, events.FaultInjected)
"""Written at once: a checkpoint may follow the one, the end of this process the other."""
CHANGES = (
    events.WorkerChanged,
    events.EpochEnded,
    events.FiguresComputed,
    events.Ended,
    events.Resumed,
)
"""Events with which the numbers are written too."""


class RunHistory:
    """Keeps the history of a run in its folder, with a thread, until it is closed."""

    def __init__(self, status: RunStatus, folder: Path) -> None:
        self._status = status
        self._file = HistoryFile(folder, status.clock.started, self._everything)
        self._counted = float("-inf")
        self._writing = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the rest.

        Waits a few seconds at most: the folder may lie on a server that is gone.
        """
        self._end.set()
        self._thread.join(LAST_SECONDS)

    def keep(self) -> bool:
        """Write what there is, from any thread; whether the disk took it."""
        with self._writing:
            unwritten = self._status.take_unwritten()
            if any(isinstance(event, events.Restored) for _, event in unwritten):
                return self._file.rewrite()  # without the epochs that are trained again
            now = self._status.clock()
            state = self._status.state()
            due = now - self._counted >= max(COUNT_SECONDS, state.samples.interval_seconds)
            if due or any(isinstance(event, CHANGES) for _, event in unwritten):
                unwritten.append((now, sums_of_state(state)))
                self._counted = now
            return self._file.write(unwritten)

    def _everything(self) -> list[Stamped]:
        self._status.take_unwritten()  # they are in the state
        return condensed_events(self._status.state(), self._status.clock())

    def _run(self) -> None:
        while not self._end.wait(WRITE_SECONDS if self.keep() else PATIENCE_SECONDS):
            pass
        self.keep()


class _Warnings(logging.Handler):
    """Warnings of the run's log are lines of its event log."""

    def __init__(self, status: RunStatus) -> None:
        super().__init__(logging.WARNING)
        self._status = status

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # a log line that cannot be formatted
            self._status.consume(events.Noted("warning", record.getMessage()[: 2 * LONGEST_TEXT]))


class StatusWatch(Watch):
    """The watch of every job. Its threads end with it."""

    def __init__(self, job: Job, say: Callable[[str], None]) -> None:
        """`say`: one line for the person at the terminal."""
        self._job = job
        self._inventory = job.inventory
        self._say = say
        self.status = job.status
        self._history: RunHistory | None = None
        self._end = threading.Event()
        self._stack = ExitStack()

    def __enter__(self) -> "StatusWatch":
        handler = _Warnings(self.status)
        logging.getLogger().addHandler(handler)
        self._stack.callback(logging.getLogger().removeHandler, handler)
        page = open_page(self._inventory, self.status.view, self._say)
        if page is not None:
            self._stack.callback(page.close)
        reader = RoleReader(
            self._inventory.tasks(), self.status.consume, lambda: page is not None and page.watched
        )
        self._stack.callback(reader.close)
        looking = threading.Thread(target=self._keep_looking, name="status", daemon=True)
        looking.start()
        self._stack.callback(looking.join)
        self._stack.callback(self._end.set)
        self.status.consume(events.StageBegan("preparing"))
        return self

    def __exit__(self, *raised: object) -> None:
        if self.status.state().state not in ENDED:
            ended = events.Ended("failed", None if raised[1] is None else str(raised[1]))
            self.status.consume(ended)
            self.consume(ended)
        self._stack.close()

    @override
    def begun(self, job: Job, folder: Path, resumed: bool) -> None:
        if resumed:
            history = list(read_events(folder))
        else:
            history = []
        if any(isinstance(event, events.Began) for _, event in history):
            self.status.resume(history)
        self._history = RunHistory(self.status, folder)

    def consume(self, event: Event) -> None:
        """Write what must not be lost; the status has the event already."""
        if self._history is not None and isinstance(event, URGENT):
            self._history.keep()
        elif self._history is not None and isinstance(event, events.Ended):
            self._history.close()  # before the report is made of it

    def notice(self) -> None:
        """Notice how the workers are, and that time has passed."""
        membership = self._job.metrics.membership
        workers = {} if membership is None else membership.workers
        training = self.status.state().training
        pieces = 1 if training is None else training.slots
        self.status.consume(
            events.Looked(
                {f"worker:{task}": _worker_view(worker, pieces) for task, worker in workers.items()}
            )
        )
        self.status.state()

    def _keep_looking(self) -> None:
        while not self._end.wait(LOOK_SECONDS):
            self.notice()


def _worker_view(worker: Worker, slots: int) -> Seen:
    item = worker.item
    if item is None:
        work = None
    else:
        work = _work(str(item.function), item.id, slots)
    return Seen(worker.phase.value, worker.departures, work)


def _work(function: str, item: int, slots: int) -> str:
    if function == "train":
        return f"update {item}"
    if function == "part":  # of a step
        return f"update {item // slots}"
    return {
        "evaluate": "evaluation",
        "pi": f"chunk {item}",
        "settle": "last update",
    }.get(function, function)


def open_page(
    inventory: Inventory, view: Callable[[], RunView], say: Callable[[str], None]
) -> "PageServer | None":
    """Serve the page and say where.

    None, with a warning, where that is impossible: the job continues without.
    """
    if inventory.page.listen == "off":
        return None
    from cluster.pages.drawing import STATIC, Drawing
    from cluster.pages.server import PageServer

    coordinator = inventory.task("coordinator", 0)
    assert coordinator.page_port is not None
    if inventory.page.listen == "cluster":
        host = coordinator.host
    else:
        host = LOOPBACK
    names = {coordinator.node, f"{coordinator.node}.local", socket.gethostname()}
    try:
        page = PageServer(host, coordinator.page_port, view, Drawing(), STATIC, names)
    except OSError as problem:
        log.warning(
            "no live page: %s. Another port: --set ports.coordinator_page=PORT, or page_port of the"
            " coordinator's entry in the inventory; no page: --set page.listen=off",
            port_refusal(problem, host, coordinator.page_port, "the live page"),
        )
        return None
    say(f"live page: http://{host}:{page.port}/{way_in(inventory, host, page.port)}")
    return page


def way_in(inventory: Inventory, host: str, port: int) -> str:
    """Return what to type first on a machine that is not the coordinator's node."""
    if inventory.one_host or host != LOOPBACK:
        return ""
    node = inventory.node(inventory.task("coordinator", 0).node)
    user = node.ssh.user or inventory.ssh.user
    address = node.ssh.address or inventory.links[node.name]
    return (
        f" on {node.name}; from elsewhere after `ssh -N -L {port}:{LOOPBACK}:{port}"
        f" {user}@{address}`"
    )
