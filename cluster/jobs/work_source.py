"""The items of a stretch of updates, as the mode's policy grants them, and their replies."""

import time
from collections.abc import Callable, Sequence

from cluster.jobs.fit import Update
from cluster.jobs.modes.mode import ItemResult, Mode, Stretch
from core.consistency import Grant
from core.engine.workers import Item, Outcome
from core.status.parts import PARTS

CLOCK_ERROR_SECONDS = 0.01
"""Excess of a call's parts over the call, at most: clocks run at slightly different rates."""


class WorkSource:
    """A `Source` over one stretch of updates. The policy grants what an idle worker may begin."""

    def __init__(
        self,
        mode: Mode,
        updates: Sequence[Update],
        stretch: Stretch,
        live: Callable[[], frozenset[int]],
    ) -> None:
        self._mode = mode
        self._stretch = stretch
        self._live = live
        self._updates = {update.id: update for update in updates}
        self._grants: dict[int, Grant] = {}
        self.begun: set[int] = set()
        """Updates of which something has been granted."""
        mode.policy.begin(range(updates[0].id, updates[-1].id + 1))

    def draw(self, task: int) -> Item | None:
        """Return the item that the worker `task` begins now, or None."""
        grant = self._mode.policy.draw(task, self._live(), time.monotonic())
        if grant is None:
            return None
        item = self._mode.item(grant, self._updates[grant.update], self._stretch)
        self._grants[item.id] = grant
        self.begun.add(grant.update)
        return item

    def exhausted(self) -> bool:
        """Whether no new item will ever come."""
        return self._mode.policy.exhausted()

    def withdrawn(self) -> list[int]:
        """Return ids of items whose outcome is no longer needed."""
        gone = set(self._mode.policy.withdrawn())
        if gone:
            return [identifier for identifier, grant in self._grants.items() if grant in gone]
        return []

    def read(self, outcome: Outcome) -> tuple[Update, ItemResult]:
        """Return what an outcome says, and which update it belongs to."""
        grant = self._grants.pop(outcome.item.id)
        update = self._updates[grant.update]
        return update, self._mode.read(grant, update, outcome, self._stretch)


def parts_of(seconds: tuple[float, float, float], whole: float) -> dict[str, float]:
    """Return seconds of pull, compute, push and wait of a call that took `whole` seconds.

    The mapping is empty where they cannot be true.

    A worker reads the first three off its clock of the day, which time synchronization sets, on a
    Pi by years.
    """
    measured = (
        all(0.0 <= part <= whole for part in seconds)
        and sum(seconds) <= whole + CLOCK_ERROR_SECONDS
    )
    if not measured:
        return {}
    return {**dict(zip(PARTS[:3], seconds, strict=True)), "wait": max(0.0, whole - sum(seconds))}
