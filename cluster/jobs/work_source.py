"""Between a mode and the dispatcher: asks the policy what an idle worker may begin, and remembers what was granted."""

import time
from collections.abc import Callable, Sequence

from cluster.consistency import Grant
from cluster.engine.messages import Item, Outcome
from cluster.jobs.batches import Update
from cluster.jobs.modes.mode import Mode, Reply, Stretch


class WorkSource:
    """A `ItemSource` over one stretch of updates."""

    def __init__(
        self, mode: Mode, updates: Sequence[Update], stretch: Stretch, live: Callable[[], frozenset[int]]
    ) -> None:
        self._mode, self._stretch, self._live = mode, stretch, live
        self._updates = {update.id: update for update in updates}
        self._grants: dict[int, Grant] = {}
        self.begun: set[int] = set()
        """Updates of which something has been granted."""
        mode.policy.begin(range(updates[0].id, updates[-1].id + 1))

    def draw(self, task: int) -> Item | None:
        """See ItemSource."""
        grant = self._mode.policy.draw(task, self._live(), time.monotonic())
        if grant is None:
            return None
        item = self._mode.item(grant, self._updates[grant.update], self._stretch)
        self._grants[item.id] = grant
        self.begun.add(grant.update)
        return item

    def exhausted(self) -> bool:
        """See ItemSource."""
        return self._mode.policy.exhausted()

    def withdrawn(self) -> list[int]:
        """See ItemSource."""
        gone = set(self._mode.policy.withdrawn())
        return [identifier for identifier, grant in self._grants.items() if grant in gone] if gone else []

    def read(self, outcome: Outcome) -> tuple[Update, Reply]:
        """What an outcome says, and which update it belongs to."""
        grant = self._grants.pop(outcome.item.id)
        update = self._updates[grant.update]
        return update, self._mode.read(grant, update, outcome, self._stretch)
