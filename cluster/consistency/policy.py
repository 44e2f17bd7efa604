"""The one interface of all consistency policies."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Grant:
    """Permission to compute: micro-batches `[first, first + slots)` of update `update`."""

    update: int
    first: int
    slots: int


class Policy(Protocol):
    """Decides, for each worker that is idle, what it may begin now. Pure: the time is an argument."""

    def begin(self, updates: range) -> None:
        """A new stretch of updates, after the one before it has been completed or broken off."""

    def draw(self, task: int, live: frozenset[int], now: float) -> Grant | None:
        """What worker `task` begins now; None if nothing may or should begin there yet.

        `live` are the workers of the cluster, `now` a time in seconds that never runs backwards.
        """

    def replied(self, grant: Grant, task: int, seconds: float) -> bool:
        """The first reply to a grant has come from `task`; whether its update is complete by that."""

    def exhausted(self) -> bool:
        """Whether everything of the stretch has been granted."""

    def withdrawn(self) -> list[Grant]:
        """Grants under way that are no longer wanted, since the last call."""

    def counted(self, update: int) -> list[int]:
        """The micro-batches that a complete update consists of, ascending: those that came, where not all must."""


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
