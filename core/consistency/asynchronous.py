"""`mode: async`: every update is a push of its own, applied as it arrives."""

from typing import Any, ClassVar

from core.consistency import Grant, WholeUpdates, updates_in_call
from core.inventory.extensions import ModeFacts
from core.inventory.fields import Section


class Asynchronous(WholeUpdates, ModeFacts):
    """Every worker begins its next batch at once; an update is applied as it arrives.

    A grant is one whole update or several, the more the shorter they are. The last updates of a
    stretch do not go to a worker so slow that all others would wait for it.
    """

    name = "async"
    summary = "applies each as it arrives"
    update = "one batch, pushed by one worker"
    waits = "none"
    costs = "gradients are as stale as there are other workers"
    parameters = "servers"
    in_steps = False
    repeatable = True
    mechanism = "cluster.jobs.modes.pushes:AsynchronousMode"
    Options: ClassVar[type[Section] | None] = None

    @classmethod
    def several_a_call(cls, options: Any) -> bool:
        """Return True."""
        return True

    def begin(self, updates: range) -> None:
        """Start a stretch with nothing under way."""
        super().begin(updates)
        self.under_way: dict[int, tuple[int, float, int]] = {}
        """Worker, time of start and number of updates, by the first of each grant under way."""

    def draw(self, task: int, live: frozenset[int], now: float) -> Grant | None:
        """Grant the next update, or None if it must wait or all ends sooner without this worker."""
        if self.exhausted() or not self.may_start(self._next, len(live) + (task not in live)):
            return None
        remaining = (self._stop - self._next) * self._slots

        def busy() -> float:
            return sum(
                self.speeds.left(other, self._slots * updates, now - since)
                for other, since, updates in self.under_way.values()
            )

        if self.under_way and not self.speeds.worth_while(task, self._slots, remaining, busy, live):
            return None
        updates = self.updates_of_grant(task, len(live))
        grant = Grant(self._next, 0, self._slots, updates)
        self.under_way[grant.update] = task, now, updates
        self._next += updates
        return grant

    def updates_of_grant(self, task: int, workers: int) -> int:
        """Return how many updates the worker does in its next call; subclasses decide.

        Towards the end of a stretch they become fewer, so that the workers end together: a worker
        gets its share of half of what is left (factoring, Hummel et al., CACM 35(8), 1992).
        """
        if not self.speeds.are_measured:
            return 1
        usual_seconds = self.speeds.seconds(self._slots, self.speeds.speed_of(task))
        seconds = max(usual_seconds, self.speeds.latest_seconds(task, self._slots))
        share = (self._stop - self._next) // (2 * max(1, workers))
        return updates_in_call(seconds, min(self.most_updates, share))

    def may_start(self, update: int, workers: int) -> bool:
        """Return whether `update` may begin now, with so many workers; subclasses decide."""
        return True

    def replied(self, grant: Grant, task: int, seconds: float, done: int | None = None) -> range:
        """Take its updates as complete."""
        self.speeds.observe(task, grant.slots, seconds, grant.updates)
        self.under_way.pop(grant.update, None)
        return grant.numbers
