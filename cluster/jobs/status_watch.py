"""A job's status: the stream of its events becomes a state, which page and history show until the job has ended.

A thread each looks at the workers, writes the history, reads the roles and serves the page. The job waits for none of
them, but for the disk where an event must not be lost: an epoch, and a fault that may end this process.
"""

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.engine.membership import Worker
from cluster.inventory import Inventory
from cluster.jobs.lifecycle import Job, Watch
from cluster.jobs.roles import RoleReader
from cluster.server.sockets import explain
from cluster.status import events
from cluster.status.apply import apply, implied, replay
from cluster.status.events import Event, Stamped
from cluster.status.history import HistoryFile, counted, events_of, is_kept, read_events
from cluster.status.parts import NodeTasks, Seen
from cluster.status.state import ENDED, LONGEST_TEXT, RunState
from cluster.status.view import RunView

if TYPE_CHECKING:
    from cluster.pages.server import PageServer

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
MOST_PENDING = 10_000
"""Events that may wait to be applied."""
MOST_KEPT = 20_000
"""Events that may wait to be written: if the disk takes nothing for so long, the file is written whole later."""

WRITE_SECONDS = 1.0
COUNT_SECONDS = 10.0
"""How old the numbers may be that a killed coordinator leaves behind."""
PATIENCE_SECONDS = 30.0
"""After the disk took nothing."""
LAST_SECONDS = 5.0
LOOPBACK = "127.0.0.1"

URGENT = (events.EpochEnded, events.StoppedEarly, events.FaultInjected)
"""Written at once: a checkpoint may follow the one, the end of this process the other."""
CHANGES = (events.WorkerChanged, events.EpochEnded, events.FiguresComputed, events.Ended, events.Resumed)
"""Events with which the numbers are written too."""


class RunClock:
    """Seconds since a run began, which a change of the machine's clock does not move."""

    def __init__(self, started: datetime | None = None, at_least: float = 0.0) -> None:
        """`started`: when an earlier coordinator began; at least `at_least` seconds have passed since."""
        now = datetime.now(UTC)
        # As the history has it, in milliseconds.
        self.started = started or now.replace(microsecond=now.microsecond // 1000 * 1000)
        self._began = time.monotonic() - max(at_least, (now - self.started).total_seconds())

    def __call__(self) -> float:
        """The present second."""
        return time.monotonic() - self._began


def began(inventory: Inventory, job: str, started: datetime) -> events.Began:
    """The first event of a run, from what the inventory says."""
    train = inventory.jobs.train if job in ("train", "cv") else None
    alone = job in ("train", "cv", "recognise") and not inventory.needs_roles(job)
    nodes = tuple(
        NodeTasks(
            node.name, inventory.hosts.get(node.name, node.name),
            tuple(task.name for task in inventory.tasks() if task.node == node.name),
        )
        for node in inventory.nodes
    )  # fmt: skip
    return events.Began(
        inventory.cluster, job, started, nodes,
        None if train is None else train.mode, None if train is None else train.model.name,
        inventory.jobs.pi.samples if job == "pi" else None, alone,
    )  # fmt: skip


class RunStatus:
    """The state of the run, fed by any thread. `consume` costs the job an append; who looks applies what waits."""

    def __init__(self, inventory: Inventory, job: str) -> None:
        self.clock = RunClock()
        self._inventory, self._job = inventory, job
        self._state = RunState()
        self._pending = deque[Stamped]()
        self._kept: list[Stamped] = []
        self._lock = threading.Lock()
        self.consume(began(inventory, job, self.clock.started))

    def consume(self, event: Event) -> None:
        """Take an event of the job."""
        self._pending.append((self.clock(), event))
        if len(self._pending) > MOST_PENDING:
            self.state()

    def state(self) -> RunState:
        """The state now."""
        with self._lock:
            return self._applied()

    def view(self) -> RunView:
        """The picture now."""
        state = self.state()
        return state.view(self.clock())

    def take_kept(self) -> list[Stamped]:
        """Events for the history since the last call."""
        with self._lock:
            self._applied()
            kept, self._kept = self._kept, []
            return kept

    def resume(self, found: list[Stamped]) -> None:
        """Continue the run of these events; behind them comes what this coordinator has seen so far."""
        earlier = replay(found)
        latest = max(at for at, _ in found)
        with self._lock:
            self._applied()
            seen = [event for _, event in self._kept if not isinstance(event, events.Began)]
            self.clock = RunClock(earlier.started, latest)
            self._state, self._kept, now = earlier, [], self.clock()
            for event in (began(self._inventory, self._job, self.clock.started), events.Resumed(latest), *seen):
                self._apply(event, now)

    def _applied(self) -> RunState:
        busy: list[Stamped] = []
        for _ in range(len(self._pending)):
            at, event = self._pending.popleft()
            if isinstance(event, events.Stepped | events.Updated):
                busy.append((at, event))
                continue
            self._state = replay(busy, self._state)
            busy.clear()
            self._apply(event, at)
        self._state = replay(busy, self._state)
        return self._state

    def _apply(self, event: Event, seconds: float) -> None:
        for at, follows in (*implied(self._state, event, seconds), (seconds, event)):
            self._state = apply(self._state, follows, at)
            if is_kept(follows) and len(self._kept) < MOST_KEPT:
                self._kept.append((at, follows))


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
        """Write the rest. Waits a few seconds at most: the folder may lie on a server that is gone."""
        self._end.set()
        self._thread.join(LAST_SECONDS)

    def keep(self) -> bool:
        """Write what there is, from any thread; whether the disk took it."""
        with self._writing:
            found = self._status.take_kept()
            if any(isinstance(event, events.Restored) for _, event in found):
                return self._file.rewrite()  # without the epochs that are trained again
            now, state = self._status.clock(), self._status.state()
            due = now - self._counted >= max(COUNT_SECONDS, state.samples.interval_seconds)
            if due or any(isinstance(event, CHANGES) for _, event in found):
                found.append((now, counted(state)))
                self._counted = now
            return self._file.write(found)

    def _everything(self) -> list[Stamped]:
        self._status.take_kept()  # they are in the state
        return events_of(self._status.state(), self._status.clock())

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

    def __init__(self, inventory: Inventory, job: str, say: Callable[[str], None]) -> None:
        """`say`: one line for the person at the terminal."""
        self._inventory, self._say = inventory, say
        self.status = RunStatus(inventory, job)
        self._job: Job | None = None
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
        )  # fmt: skip
        self._stack.callback(reader.close)
        looking = threading.Thread(target=self._keep_looking, name="status", daemon=True)
        looking.start()
        self._stack.callback(looking.join)
        self._stack.callback(self._end.set)
        self.status.consume(events.StageBegan("preparing"))
        return self

    def __exit__(self, *raised: object) -> None:
        if self.status.state().state not in ENDED:
            self.consume(events.Ended("failed", None if raised[1] is None else str(raised[1])))
        self._stack.close()

    def begun(self, job: Job, folder: Path, resumed: bool) -> None:
        """See Watch."""
        self._job = job
        found = list(read_events(folder)) if resumed else []
        if any(isinstance(event, events.Began) for _, event in found):
            self.status.resume(found)
        self._history = RunHistory(self.status, folder)

    def consume(self, event: Event) -> None:
        """See Watch."""
        self.status.consume(event)
        if self._history is not None and isinstance(event, URGENT):
            self._history.keep()
        elif self._history is not None and isinstance(event, events.Ended):
            self._history.close()  # before the report is made of it

    def look(self) -> None:
        """See how the workers are, and that time has passed."""
        membership = self._job.metrics.membership if self._job is not None else None
        workers = membership.workers if membership is not None else {}
        training = self.status.state().training
        pieces = training.micro_batches if training is not None else 1
        self.status.consume(
            events.Looked({f"worker:{task}": _seen(worker, pieces) for task, worker in workers.items()})
        )
        self.status.state()

    def _keep_looking(self) -> None:
        while not self._end.wait(LOOK_SECONDS):
            self.look()


def _seen(worker: Worker, micro_batches: int) -> Seen:
    item = worker.item
    work = None if item is None else _work(item.function, item.id, micro_batches)
    return Seen(worker.phase.value, worker.departures, work)


def _work(function: str, item: int, micro_batches: int) -> str:
    if function == "train":
        return f"update {item}"
    if function.startswith("train_"):  # a part of a step: see modes/synchronous.py
        return f"update {item // micro_batches}"
    return {"evaluate": "evaluation", "recognise": f"batch {item}", "pi": f"chunk {item}", "settle": "last update"}.get(
        function, function
    )


def open_page(inventory: Inventory, view: Callable[[], RunView], say: Callable[[str], None]) -> "PageServer | None":
    """Serve the page and say where; None, with a warning, where that is impossible: the job continues without."""
    if inventory.page.listen == "off":
        return None
    from cluster.pages.drawing import STATIC, Drawing
    from cluster.pages.server import PageServer

    coordinator = inventory.task("coordinator", 0)
    assert coordinator.page_port is not None
    host = coordinator.host if inventory.page.listen == "cluster" else LOOPBACK
    names = {coordinator.node, f"{coordinator.node}.local", socket.gethostname()}
    try:
        page = PageServer(host, coordinator.page_port, view, Drawing(), STATIC, names)
    except OSError as problem:
        log.warning(
            "no live page: %s. Another port: --set ports.coordinator_page=PORT, or page_port of the coordinator's "
            "entry in the inventory; no page: --set page.listen=off",
            explain(problem, host, coordinator.page_port, "the live page"),
        )
        return None
    say(f"live page: http://{host}:{page.port}/{way_in(inventory, host, page.port)}")
    return page


def way_in(inventory: Inventory, host: str, port: int) -> str:
    """What to type first on a machine that is not the coordinator's node."""
    if inventory.one_host or host != LOOPBACK:
        return ""
    node = inventory.node(inventory.task("coordinator", 0).node)
    user = node.ssh.user or inventory.ssh.user
    address = node.ssh.address or inventory.hosts[node.name]
    return f" on {node.name}; from elsewhere after `ssh -N -L {port}:{LOOPBACK}:{port} {user}@{address}`"
