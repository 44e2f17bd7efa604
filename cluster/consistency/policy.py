"""The interface of all policies, and what several of them share."""

from dataclasses import dataclass
from typing import Protocol

from cluster.consistency.speeds import Speeds


@dataclass(frozen=True)
class Grant:
    """Permission to compute: micro-batches `[first, first + slots)` of update `update`."""

    update: int
    first: int
    slots: int


class Policy(Protocol):
    """Decides what an idle worker may begin now. Pure: the time is an argument."""

    def begin(self, updates: range) -> None:
        """Start a new stretch of updates, after the last one was completed or cancelled."""

    def draw(self, task: int, live: frozenset[int], now: float) -> Grant | None:
        """The grant that worker `task` begins now; None if it may or should not begin one yet.

        `live` are the workers of the cluster, `now` a time in seconds that never runs backwards.
        """

    def replied(self, grant: Grant, task: int, seconds: float) -> bool:
        """Record the first reply to a grant, from `task`; returns whether it completes its update."""

    def exhausted(self) -> bool:
        """Whether everything of the stretch has been granted."""

    def withdrawn(self) -> list[Grant]:
        """Grants under way that became superfluous since the last call."""

    def counted(self, update: int) -> list[int]:
        """The micro-batches that a complete update consists of, ascending; fewer than all with a quorum."""


class WholeUpdates:
    """What policies share that always grant all micro-batches of an update at once, and wait for each grant."""

    _slots: int

    def withdrawn(self) -> list[Grant]:
        """See Policy: never any."""
        return []

    def counted(self, update: int) -> list[int]:
        """See Policy: all of them."""
        del update
        return list(range(self._slots))


class WholeSteps(WholeUpdates):
    """One step after the other, each granted whole: to one process, or to all workers in one call."""

    def __init__(self, slots: int, speeds: Speeds) -> None:
        self._slots, self.speeds = slots, speeds
        self.begin(range(0))

    def begin(self, updates: range) -> None:
        """See Policy."""
        self._step, self._stop, self._open = updates.start, updates.stop, False

    def draw(self, task: int, live: frozenset[int], now: float) -> Grant | None:
        """See Policy."""
        del task, live, now
        if self._open or self._step >= self._stop:
            return None
        self._open = True
        return Grant(self._step, 0, self._slots)

    def replied(self, grant: Grant, task: int, seconds: float) -> bool:
        """See Policy."""
        del grant, task, seconds
        self._step, self._open = self._step + 1, False
        return True

    def exhausted(self) -> bool:
        """See Policy."""
        return self._step >= self._stop
