"""Policies under which every update is a push of its own: asynchronous, and with bounded staleness."""

from cluster.consistency.policy import Grant, WholeUpdates
from cluster.consistency.speeds import Speeds


class Asynchronous(WholeUpdates):
    """Every worker goes on at once; an update is applied as it arrives.

    With several micro-batches a grant is always the whole update. The last updates of a stretch are not given to a
    worker so slow that everybody would wait for it.
    """

    def __init__(self, slots: int, speeds: Speeds) -> None:
        """`slots` micro-batches an update."""
        self._slots, self.speeds = slots, speeds
        self.begin(range(0))

    def begin(self, updates: range) -> None:
        """See Policy."""
        self._next, self._stop = updates.start, updates.stop
        self._open: dict[int, tuple[int, float]] = {}
        """Who is at each update under way, by its id, and since when."""

    def draw(self, task: int, live: frozenset[int], now: float) -> Grant | None:
        """See Policy."""
        if self.exhausted() or not self._may_start(self._next, len(live) + (task not in live)):
            return None
        remaining = (self._stop - self._next) * self._slots

        def busy() -> float:
            return sum(self.speeds.left(other, self._slots, now - since) for other, since in self._open.values())

        if self._open and not self.speeds.worth_while(task, self._slots, remaining, busy, live):
            return None
        grant = Grant(self._next, 0, self._slots)
        self._open[grant.update] = task, now
        self._next += 1
        return grant

    def _may_start(self, update: int, workers: int) -> bool:
        del update, workers
        return True

    def replied(self, grant: Grant, task: int, seconds: float) -> bool:
        """See Policy."""
        self.speeds.observe(task, grant.slots, seconds)
        self._open.pop(grant.update, None)
        return True

    def exhausted(self) -> bool:
        """See Policy."""
        return self._next >= self._stop


class BoundedStaleness(Asynchronous):
    """Stale synchronous parallel (Ho et al., NIPS 2013): nobody is more than `bound` clocks ahead of the slowest.

    With n workers in the cluster a clock is n updates, because any worker may do any update here. An update of clock
    c starts once all updates of the clocks up to c - bound - 1 are applied. A bound of 0 lets one clock end before
    the next begins. Workers that are away do not count: with them a clock would be longer than a round.
    """

    def __init__(self, slots: int, speeds: Speeds, bound: int) -> None:
        self._bound = bound
        super().__init__(slots, speeds)

    def begin(self, updates: range) -> None:
        """See Policy. Clocks are counted from the stretch's first update."""
        super().begin(updates)
        self._start = updates.start

    def _may_start(self, update: int, workers: int) -> bool:
        clock = (update - self._start) // workers
        oldest_open = min(self._open, default=update)
        return oldest_open >= self._start + (clock - self._bound) * workers
