"""The state of a run while its job lasts: what terminal, metrics, page and history show."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby

from core.inventory import Inventory
from core.status import events
from core.status.apply import apply, implied_events, is_work, replay
from core.status.events import Event, Stamped
from core.status.history import is_kept
from core.status.parts import NodeTasks
from core.status.state import RunState
from core.status.view import RunView

MOST_PENDING = 10_000
"""Events that may wait to be applied."""
MOST_KEPT = 20_000
"""Events that may wait to be written: if the disk takes nothing for so long, the file is written
whole later."""

Now = Callable[[], tuple[RunState, float]]
"""The state of the run, and its present second."""


class RunClock:
    """Seconds since a run began, which a change of the machine's clock does not move."""

    def __init__(self, started: datetime, at_least: float = 0.0) -> None:
        """Begin at `started`, which was at least `at_least` seconds ago."""
        self.started = started
        passed = (datetime.now(UTC) - started).total_seconds()
        self._began = time.monotonic() - max(at_least, passed)

    def __call__(self) -> float:
        """Return the present second."""
        return time.monotonic() - self._began


def began(inventory: Inventory, job: str) -> events.Began:
    """Return the first event of a run that begins now, from what the inventory says."""
    now = datetime.now(UTC)
    if job in ("train", "cv"):
        mode, model = inventory.jobs.train.mode, inventory.jobs.train.model.name
    else:
        mode, model = None, None
    nodes = tuple(
        NodeTasks(
            node.name,
            inventory.hosts.get(node.name, node.name),
            tuple(task.name for task in inventory.tasks() if task.node == node.name),
        )
        for node in inventory.nodes
    )
    return events.Began(
        inventory.cluster,
        job,
        now.replace(microsecond=now.microsecond // 1000 * 1000),  # as the history has it
        nodes,
        mode,
        model,
        inventory.jobs.pi.samples if job == "pi" else None,
        job in ("train", "cv") and not inventory.needs_roles(job),
    )


class RunStatus:
    """The state of the run, fed by any thread.

    `consume` costs the job an append; who looks applies what waits.
    """

    def __init__(self, first: events.Began) -> None:
        """`first`: the first event of the run."""
        self.clock = RunClock(first.started)
        self._first = first
        self._state = RunState()
        self._pending = deque[Stamped]()
        self._unwritten: list[Stamped] = []
        self._lock = threading.Lock()
        self.consume(first)

    def consume(self, event: Event) -> None:
        """Take an event of the job."""
        self._pending.append((self.clock(), event))
        if len(self._pending) > MOST_PENDING:
            self.state()

    def state(self) -> RunState:
        """Return the state now."""
        with self._lock:
            return self._applied()

    def now(self) -> tuple[RunState, float]:
        """Return the state now, and the present second."""
        return self.state(), self.clock()

    def view(self) -> RunView:
        """Return the picture now."""
        state, seconds = self.now()
        return state.view(seconds)

    def take_unwritten(self) -> list[Stamped]:
        """Return the events for the history since the last call."""
        with self._lock:
            self._applied()
            unwritten = self._unwritten
            self._unwritten = []
            return unwritten

    def resume(self, history: list[Stamped]) -> None:
        """Continue the run of these events.

        Behind them comes what this coordinator has seen so far.
        """
        earlier = replay(history)
        latest = max(at for at, _ in history)
        with self._lock:
            self._applied()
            present_events = [
                event for _, event in self._unwritten if not isinstance(event, events.Began)
            ]
            self.clock = RunClock(earlier.started or self._first.started, latest)
            self._state = earlier
            self._unwritten = []
            now = self.clock()
            again = replace(self._first, started=self.clock.started)
            for event in (again, events.Resumed(latest), *present_events):
                self._apply(event, now)

    def _applied(self) -> RunState:
        pending = [self._pending.popleft() for _ in range(len(self._pending))]
        for busy, group in groupby(pending, is_work):
            if busy:
                self._state = replay(group, self._state)
            else:
                for at, event in group:
                    self._apply(event, at)
        return self._state

    def _apply(self, event: Event, seconds: float) -> None:
        for at, follows in (*implied_events(self._state, event, seconds), (seconds, event)):
            self._state = apply(self._state, follows, at)
            if is_kept(follows) and len(self._unwritten) < MOST_KEPT:
                self._unwritten.append((at, follows))
