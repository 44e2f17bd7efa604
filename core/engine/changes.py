"""Changes of the cluster definition, made together, and the drains that wait for them.

TensorFlow sends each change to every live worker and waits for all answers, so a stopped worker
blocks the coordinator until the watchdog cuts it off. So a change waits, for a while, until no
worker is suspect or fenced: when half of a cluster stops at once, one change takes out that half,
and the other half works meanwhile.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum

from core.engine.guardian import Guardian
from core.engine.lost import first_line
from core.engine.membership import Membership, Phase
from core.engine.messages import Joined, JoinFailed
from core.engine.runtime import Runtime
from core.ground.lazy import tf

log = logging.getLogger(__name__)

LONGEST_SECONDS = 5.0
"""The longest delay of a change: the call of a fenced worker may return late."""


SETTLE_SECONDS = 0.2
"""Pause after the last worker that left or came: no two calls of many dying ones fail at once."""


class Changes:
    """Collects the workers that leave and join, and changes the definition.

    Nothing else changes it.
    """

    def __init__(self, runtime: Runtime, membership: Membership, guardian: Guardian) -> None:
        self._runtime = runtime
        self._membership = membership
        self._guardian = guardian
        self._leaving: dict[int, None] = {}
        self._joining: dict[int, None] = {}
        self._since: float | None = None
        self._latest = 0.0

    def leave(self, task: int) -> None:
        """Take the worker out with the next change."""
        self._leaving[task] = None
        self._note()

    def join(self, task: int) -> None:
        """Take the worker in with the next change."""
        self._joining[task] = None
        self._note()

    def _note(self) -> None:
        self._latest = time.monotonic()
        self._since = self._since or self._latest

    def settled_at(self, now: float) -> float:
        """Return when the workers that leave and come will have settled.

        It is infinity where they have settled, or none leaves or comes.
        """
        settled = self._latest + SETTLE_SECONDS
        if self._since is not None and settled > now:
            return settled
        return float("inf")

    def due(self, now: float) -> bool:
        """Whether there is a change to make now."""
        if self._since is None:
            return False
        doubtful = (Phase.SUSPECT, Phase.FENCED)
        calm = all(worker.phase not in doubtful for worker in self._membership.workers.values())
        settled = now - self._latest >= SETTLE_SECONDS
        return (calm and settled) or now - self._since >= LONGEST_SECONDS

    def make(self, failed: Callable[[str], None]) -> tuple[list[int], list[Joined | JoinFailed]]:
        """Change the definition; return the workers that left and the result of each that joins.

        `failed` gets the reason when the change that takes workers out fails: another worker may
        have died meanwhile. That worker's own call reports it, and the next change sends the
        definition again.
        """
        leaving = list(self._leaving)
        joining = list(self._joining)
        self._leaving = {}
        self._joining = {}
        self._since = None
        if leaving:
            self._leave(leaving, failed)
        return leaving, self._joined(joining)

    def _leave(self, tasks: list[int], failed: Callable[[str], None]) -> None:
        try:
            with self._guardian.quiet():
                self._runtime.update(self._membership.live)
        except tf.errors.OpError as problem:
            failed(first_line(problem))
            log.warning(
                "while dropping %s: %s", ", ".join(map(name_of, tasks)), first_line(problem)
            )
        for task in tasks:  # not earlier: it may stop while the definition changes
            self._guardian.forget(name_of(task))
            self._guardian.unfence(name_of(task))

    def _joined(self, tasks: list[int]) -> list[Joined | JoinFailed]:
        return [self._proved(outcome) for outcome in self._added(tasks)]

    def _proved(self, outcome: Joined | JoinFailed) -> Joined | JoinFailed:
        if isinstance(outcome, JoinFailed):
            return outcome
        try:
            with self._guardian.quiet():
                reason = self._runtime.refusal(outcome.task)
        except tf.errors.OpError as problem:
            reason = f"could not join: {first_line(problem)}"
        if reason is None:
            return outcome
        return JoinFailed(outcome.task, reason)

    def _added(self, tasks: list[int]) -> list[Joined | JoinFailed]:
        if not tasks:
            return []
        for task in tasks:
            self._guardian.unfence(name_of(task))
            self._guardian.watch(name_of(task))
        reason = self._refused(frozenset(tasks))
        if reason is None:
            return [Joined(task) for task in tasks]
        if len(tasks) == 1:
            return [JoinFailed(tasks[0], reason)]
        # One worker fails the join of all: add them one by one.
        outcomes: list[Joined | JoinFailed] = []
        inside: frozenset[int] = frozenset()
        for task in tasks:
            reason = self._refused(inside | {task})
            inside |= {task} if reason is None else frozenset()
            outcomes.append(Joined(task) if reason is None else JoinFailed(task, reason))
        return outcomes

    def _refused(self, tasks: frozenset[int]) -> str | None:
        try:
            # Measured: without this a worker that stops between its answer and here blocks us until
            # it continues.
            with self._guardian.quiet():
                self._runtime.update(self._membership.live | tasks)
        except tf.errors.OpError as problem:
            return f"could not join: {first_line(problem)}"
        return None


def name_of(task: int) -> str:
    """`worker:3`."""
    return f"worker:{task}"


class Drain(Enum):
    """The result of a drain."""

    DRAINED = "drained"
    UNKNOWN = "unknown"
    HOLDS_PARAMETERS = "holds parameters"
    LAST = "last"
    """No other worker could take its work."""
    BUSY = "busy"
    """It still worked on its item when the time was up."""


class Drains:
    """Lets any thread ask for a drain and wait until the dispatcher's thread reports it done."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._drained: Counter[int] = Counter()
        """Number of drains by worker."""
        self._closed = False

    def wait(self, task: int, ask: Callable[[], None], seconds: float) -> bool:
        """Call `ask`, then wait at most `seconds` for `done(task)`; returns whether it came."""
        with self._changed:
            before = self._drained[task]
            if not self._closed:
                ask()
            return self._changed.wait_for(
                lambda: self._closed or self._drained[task] > before, seconds
            )

    def done(self, task: int) -> None:
        """Wake every thread that waits for this worker."""
        with self._changed:
            self._drained[task] += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Wake every thread: no worker gets work any more, so all are drained."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
