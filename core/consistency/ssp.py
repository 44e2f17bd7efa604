"""`mode: ssp`: asynchronous pushes with bounded staleness."""

from typing import Any

from pydantic import Field

from core.consistency import Speeds
from core.consistency.asynchronous import Asynchronous
from core.inventory.fields import Section


class SspSettings(Section):
    """`mode: ssp`."""

    bound: int = Field(
        1, ge=0, le=1000, description="clocks that the fastest worker may be ahead of the slowest"
    )


class BoundedStaleness(Asynchronous):
    """Stale synchronous parallel: no worker is over `bound` clocks ahead of the slowest.

    It follows Ho et al., NIPS 2013.

    With n workers in the cluster a clock is n updates, because any worker may do any update here.
    An update of clock c starts once all updates of the clocks up to c - bound - 1 are applied. A
    bound of 0 lets one clock end before the next begins. Absent workers do not count: with them a
    clock would be longer than a round.
    """

    name = "ssp"
    summary = "bounds how stale it may be"
    update = "one batch"
    waits = "a worker that is `ssp.bound` clocks ahead of the slowest"
    costs = "a bounded part of the staleness of `async`"
    parameters = "servers"
    in_steps = False
    repeatable = True
    mechanism = "cluster.jobs.modes.pushes:AsynchronousMode"
    Options = SspSettings

    @classmethod
    def several_a_call(cls, options: Any) -> bool:
        """Return False: each update waits for those of earlier clocks."""
        return False

    def __init__(self, slots: int, speeds: Speeds, bound: int) -> None:
        self._bound = bound
        super().__init__(slots, speeds)

    def begin(self, updates: range) -> None:
        """Start counting clocks from the stretch's first update."""
        super().begin(updates)
        self._start = updates.start

    def may_start(self, update: int, workers: int) -> bool:
        """Return whether all updates more than `bound` clocks before this one's are applied."""
        clock = (update - self._start) // workers
        oldest_open = min(self.under_way, default=update)
        return oldest_open >= self._start + (clock - self._bound) * workers
