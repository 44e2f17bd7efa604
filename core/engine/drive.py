"""One run on the live workers: what is drawn, what is withdrawn, when it is over. Pure.

The dispatcher drives a cluster with it, `cluster.forecast` a simulated one.
"""

from collections.abc import Callable, Iterator

from core.consistency import Grant, Policy
from core.engine.membership import Membership
from core.engine.workers import Instruction, Item, ItemSource, Outcome


class ItemDrive:
    """Gives the items of a source to the idle workers of a membership."""

    def __init__(self, membership: Membership, source: ItemSource) -> None:
        self._membership = membership
        self._source = source
        self._live_while_drawing: frozenset[int] | None = None

    @property
    def live(self) -> frozenset[int]:
        """The workers in the cluster."""
        if self._live_while_drawing is None:
            return self._membership.live
        return self._live_while_drawing

    def forget_withdrawn(self) -> None:
        """Drop the items whose outcome is no longer needed."""
        for identifier in self._source.withdrawn():
            self._membership.forget(identifier)

    def draw(self, now: float) -> Iterator[Instruction]:
        """Yield what gives each idle worker the source's item for it.

        It draws nothing while an item waits for any worker. Carry out each instruction before the
        next.
        """
        if self._source.exhausted():
            return
        # A source reads it at each draw, and it does not change.
        self._live_while_drawing = self._membership.live
        try:
            for task in self._membership.idle:
                if self._membership.queued == 0 and (item := self._source.draw(task)) is not None:
                    yield from self._membership.give(task, item, now)
        finally:
            self._live_while_drawing = None

    def exhausted(self) -> bool:
        """Return whether no new item will ever come."""
        return self._source.exhausted()


class GrantSource:
    """The items of what a policy grants, over one stretch of updates."""

    def __init__(
        self,
        policy: Policy,
        item_of: Callable[[Grant], Item],
        live: Callable[[], frozenset[int]],
        now: Callable[[], float],
    ) -> None:
        """`now` returns seconds that never run backwards."""
        self._policy = policy
        self._item_of = item_of
        self._live = live
        self._now = now
        self._grants: dict[int, Grant] = {}
        self.begun: set[int] = set()
        """Updates of which something has been granted."""

    def draw(self, task: int) -> Item | None:
        """Return the item that the worker `task` begins now, or None."""
        grant = self._policy.draw(task, self._live(), self._now())
        if grant is None:
            return None
        item = self._item_of(grant)
        self._grants[item.id] = grant
        self.begun.update(grant.numbers)
        return item

    def exhausted(self) -> bool:
        """Return whether no new item will ever come."""
        return self._policy.exhausted()

    def withdrawn(self) -> list[int]:
        """Return ids of items whose outcome is no longer needed."""
        gone = set(self._policy.withdrawn())
        if gone:
            return [identifier for identifier, grant in self._grants.items() if grant in gone]
        return []

    def granted(self, outcome: Outcome) -> Grant:
        """Return the grant of an item that has its outcome now."""
        return self._grants.pop(outcome.item.id)
