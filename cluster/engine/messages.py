"""What the dispatcher hears (events), what it is asked to do (instructions), and the work itself (items)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Item:
    """One unit of work: call the traced function `function` with `arguments` (NumPy values) on any worker.

    `id` is unique within a run; a function that changes parameters passes it to the shards' ledger. One that is not
    `repeatable` is never given to a second worker while the first may still be at it.
    """

    id: int
    function: str
    arguments: tuple[Any, ...] = ()
    repeatable: bool = True


class ItemSource(Protocol):
    """Where a run's items come from: asked for each idle worker, so that it may decide late and by worker."""

    def draw(self, task: int) -> Item | None:
        """The item that the idle worker `task` should begin now: a new one, or one under way elsewhere, done twice.

        None if there is nothing for this worker until another outcome has come or time has passed.
        """

    def exhausted(self) -> bool:
        """Whether no new item will ever come."""

    def withdrawn(self) -> list[int]:
        """Ids of items whose outcome nobody waits for any more, since the last call."""


class InOrder:
    """A source that hands out the items of an iterable to whoever is idle first."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items: Iterator[Item] = iter(items)
        self._ahead: Item | None = None

    def draw(self, task: int) -> Item | None:
        """See ItemSource."""
        del task
        item, self._ahead = self._ahead or next(self._items, None), None
        return item

    def exhausted(self) -> bool:
        """See ItemSource."""
        self._ahead = self._ahead or next(self._items, None)
        return self._ahead is None

    def withdrawn(self) -> list[int]:
        """See ItemSource: never any."""
        return []


@dataclass(frozen=True)
class Outcome:
    """The first reply to an item: `value` is what the function returned, `seconds` the time of the call."""

    item: Item
    task: int
    value: Any
    seconds: float
    attempts: int


# Events: facts, in the order in which they reached the coordinator.


@dataclass(frozen=True)
class Answered:
    """An absent worker's server answers a probe."""

    task: int


@dataclass(frozen=True)
class Joined:
    """The runtime has taken the worker into the cluster."""

    task: int


@dataclass(frozen=True)
class JoinFailed:
    """The runtime could not take the worker into the cluster."""

    task: int
    reason: str


@dataclass(frozen=True)
class Replied:
    """A call came back with a value."""

    task: int
    attempt: int
    value: Any = field(compare=False)
    seconds: float


@dataclass(frozen=True)
class Failed:
    """A call came back with an error. `transient` errors are the network's or a dead process's; others are ours."""

    task: int
    attempt: int
    reason: str
    transient: bool = True


@dataclass(frozen=True)
class Probed:
    """A suspect was probed: `alive` says whether its server still answers."""

    task: int
    alive: bool


@dataclass(frozen=True)
class DrainAsked:
    """Somebody is about to end the worker and wants it to have nothing to do by then; answer with Release."""

    task: int


@dataclass(frozen=True)
class Silent:
    """A drained worker's server does not answer: it has been ended, and who answers next is another process."""

    task: int


Event = Answered | Joined | JoinFailed | Replied | Failed | Probed | DrainAsked | Silent


# Instructions: what the shell around the pure core does next, in this order.


@dataclass(frozen=True)
class Add:
    """Take the worker into the cluster definition; answer with Joined or JoinFailed."""

    task: int


@dataclass(frozen=True)
class Drop:
    """Take the worker out of the cluster definition."""

    task: int
    reason: str


@dataclass(frozen=True)
class Dispatch:
    """Send the item to the worker; answer with Replied or Failed carrying `attempt`."""

    task: int
    item: Item
    attempt: int


@dataclass(frozen=True)
class ProbeSuspect:
    """Ask the suspect's server for a sign of life; answer with Probed."""

    task: int


@dataclass(frozen=True)
class Fence:
    """Make sure that nothing the worker still does reaches us or holds us up: kill it, or cut our sockets to it."""

    task: int
    reason: str


@dataclass(frozen=True)
class Abandon:
    """Leave the thread that waits for this worker behind: its call never came back, not even after the fence."""

    task: int


@dataclass(frozen=True)
class Release:
    """The worker is drained: take it out of the cluster definition if it is in, and tell whoever asked for it."""

    task: int


@dataclass(frozen=True)
class Deliver:
    """Hand the outcome to whoever scheduled the item."""

    outcome: Outcome


@dataclass(frozen=True)
class GiveUp:
    """End the run: the item failed on every attempt for a reason that another worker will not mend."""

    item: Item
    reason: str


Instruction = Add | Drop | Dispatch | ProbeSuspect | Fence | Abandon | Release | Deliver | GiveUp
