"""Items of work, the events that reach the dispatcher, and the instructions that it carries out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

OVERTAKEN = "a later call on this worker has begun"
"""Words of a call's error: nothing of the call was applied, so another attempt can succeed."""


@dataclass(frozen=True)
class Item:
    """One unit of work: call `function` with `arguments` (NumPy values) on any worker.

    `function` is a `core.engine.runtime.Traced`; `str` of it is its name. `id` is unique within a
    run; a function that changes parameters passes it to the shards' ledger. An item that is not
    `repeatable` never goes to a second worker while the first may still work on it.
    """

    id: int
    function: Any
    arguments: tuple[Any, ...] = ()
    repeatable: bool = True


class ItemSource(Protocol):
    """Where a run's items come from.

    The dispatcher draws for each idle worker, so it decides late and by worker.
    """

    def draw(self, task: int) -> Item | None:
        """Return the item that the idle worker `task` begins now.

        It may be a copy of one that another worker has.

        None if this worker has to wait for another outcome or for the time.
        """

    def exhausted(self) -> bool:
        """Whether no new item will ever come."""

    def withdrawn(self) -> list[int]:
        """Ids of items whose outcome is no longer needed, since the last call."""


class InOrder:
    """Hands out the items of an iterable in order, to any idle worker."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items: Iterator[Item] = iter(items)
        self._ahead: Item | None = None

    def draw(self, task: int) -> Item | None:
        """Return the next item, or None after the last."""
        item = self._ahead or next(self._items, None)
        self._ahead = None
        return item

    def exhausted(self) -> bool:
        """Return whether all items were drawn."""
        self._ahead = self._ahead or next(self._items, None)
        return self._ahead is None

    def withdrawn(self) -> list[int]:
        """Return no item: none ever becomes superfluous."""
        return []


@dataclass(frozen=True)
class Outcome:
    """The first reply to an item: the function's `value` and the `seconds` of the call."""

    item: Item
    task: int
    value: Any
    seconds: float
    attempts: int


@dataclass(frozen=True)
class OfWorker:
    """What an event or an instruction about one worker carries."""

    task: int


@dataclass(frozen=True)
class WithReason(OfWorker):
    """An instruction about a worker with a reason for the log."""

    reason: str


# Events: facts, in the order in which they reach the coordinator.


class Answered(OfWorker):
    """The server of an absent or drained worker answers a probe."""


class Joined(OfWorker):
    """The runtime has taken the worker into the cluster."""


class JoinFailed(WithReason):
    """The runtime could not take the worker into the cluster."""


@dataclass(frozen=True)
class Replied(OfWorker):
    """A call came back with a value."""

    attempt: int
    value: Any = field(compare=False)
    seconds: float


@dataclass(frozen=True)
class Failed(OfWorker):
    """A call came back with an error.

    `transient` errors are the network's or a dead process's; others are ours. With `lacks_file` the
    worker's node has not what the call reads there.
    """

    attempt: int
    reason: str
    transient: bool = True
    lacks_file: bool = False


@dataclass(frozen=True)
class Probed(OfWorker):
    """A suspect was probed: `alive` says whether its server still answers."""

    alive: bool


class DrainAsked(OfWorker):
    """A caller asks to drain the worker; the answer is ReleaseWorker."""


class Silent(OfWorker):
    """The server of a drained worker does not answer.

    Its process has ended, and the next answer is a new process.
    """


Event = Answered | Joined | JoinFailed | Replied | Failed | Probed | DrainAsked | Silent


# Instructions: what the dispatcher does next, in this order.


class Add(OfWorker):
    """Take the worker into the cluster definition; answer with Joined or JoinFailed."""


class Drop(WithReason):
    """Take the worker out of the cluster definition."""


@dataclass(frozen=True)
class Dispatch(OfWorker):
    """Send the item to the worker; answer with Replied or Failed carrying `attempt`."""

    item: Item
    attempt: int


class ProbeSuspect(OfWorker):
    """Probe the suspect's server; answer with Probed."""


class Fence(WithReason):
    """Keep the worker's work from reaching or blocking us: kill it, or cut our sockets to it."""


class Abandon(OfWorker):
    """Abandon the thread that waits for this worker, whose call outlived even the fence."""


class ReleaseWorker(OfWorker):
    """Take the drained worker out of the cluster definition, and answer the callers that wait."""


@dataclass(frozen=True)
class Deliver:
    """Hand the outcome to the run that scheduled the item."""

    outcome: Outcome


@dataclass(frozen=True)
class GiveUp:
    """End the run: the item fails on every worker."""

    item: Item
    reason: str


Instruction = (
    Add | Drop | Dispatch | ProbeSuspect | Fence | Abandon | ReleaseWorker | Deliver | GiveUp
)
