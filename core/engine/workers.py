"""Work and the workers as the coordinator sees them. Pure.

Items of work, the events that reach the dispatcher, the instructions that it carries out, and one
worker's state: its phase, the legal changes of phase, its deadlines.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from statistics import median
from typing import Any, Protocol

from core.ground.waiting import Backoff

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


class Phase(Enum):
    """Where a worker stands. The value is the label of the worker-state metric."""

    ABSENT = "absent"
    JOINING = "joining"
    IDLE = "idle"
    BUSY = "busy"
    SUSPECT = "suspect"
    SLOW = "slow"
    FENCED = "fenced"
    DRAINED = "drained"


TIMED = (Phase.BUSY, Phase.SUSPECT, Phase.SLOW, Phase.FENCED, Phase.DRAINED)
"""Phases that end when their time is up."""

OUTSIDE = (Phase.ABSENT, Phase.JOINING, Phase.DRAINED)
"""Phases in which the cluster definition does not contain the worker."""


class Cause(StrEnum):
    """What changes a worker's phase: an event, a decision, or the time."""

    ANSWERED = "its server answered a probe"
    JOINED = "the runtime took it in"
    JOIN_FAILED = "the runtime could not take it in"
    DISPATCHED = "it got an item"
    REPLIED = "its reply came"
    FAILED = "its call failed"
    OVERDUE = "its time was up"
    ALIVE = "its server answered the probe of a suspect"
    SILENT = "its server did not answer a probe"
    DRAIN_ASKED = "a drain was asked for"


LEGAL_CHANGES: Mapping[tuple[Phase, Phase], tuple[Cause, ...]] = {
    (Phase.ABSENT, Phase.JOINING): (Cause.ANSWERED,),
    (Phase.ABSENT, Phase.DRAINED): (Cause.DRAIN_ASKED,),
    (Phase.JOINING, Phase.IDLE): (Cause.JOINED,),
    (Phase.JOINING, Phase.ABSENT): (Cause.JOIN_FAILED,),
    (Phase.IDLE, Phase.BUSY): (Cause.DISPATCHED,),
    (Phase.IDLE, Phase.DRAINED): (Cause.DRAIN_ASKED,),
    (Phase.BUSY, Phase.IDLE): (Cause.REPLIED,),
    (Phase.BUSY, Phase.ABSENT): (Cause.FAILED,),
    (Phase.BUSY, Phase.SUSPECT): (Cause.OVERDUE,),
    (Phase.SUSPECT, Phase.IDLE): (Cause.REPLIED,),
    (Phase.SUSPECT, Phase.ABSENT): (Cause.FAILED,),
    (Phase.SUSPECT, Phase.SLOW): (Cause.ALIVE,),
    (Phase.SUSPECT, Phase.FENCED): (Cause.SILENT, Cause.OVERDUE),
    (Phase.SLOW, Phase.IDLE): (Cause.REPLIED,),
    (Phase.SLOW, Phase.ABSENT): (Cause.FAILED,),
    (Phase.SLOW, Phase.FENCED): (Cause.OVERDUE,),
    (Phase.FENCED, Phase.ABSENT): (Cause.REPLIED, Cause.FAILED, Cause.OVERDUE),
    (Phase.DRAINED, Phase.ABSENT): (Cause.SILENT, Cause.OVERDUE),
    (Phase.DRAINED, Phase.DRAINED): (Cause.DRAIN_ASKED,),
}
"""Every legal change of a worker's phase, (from, to), and what causes it."""


class IllegalPhaseChange(RuntimeError):
    """A defect: an event would change a phase in a way that `LEGAL_CHANGES` does not have."""

    def __init__(self, task: int, before: Phase, after: Phase, cause: Cause) -> None:
        legal = "; ".join(
            f"{end.value} ({' or '.join(causes)})"
            for (begin, end), causes in LEGAL_CHANGES.items()
            if begin is before
        )
        super().__init__(
            f"worker:{task} cannot go from {before.value} to {after.value} because {cause}:"
            f" expected one of {legal}. Please report this with the job's log"
        )


@dataclass
class AdaptiveDeadline:
    """A deadline of `median + spreads * MAD` over the latest replies.

    It is never below `floor_seconds` or twice the median.

    A fixed timeout fits one machine only (hivemind#676), so the deadline follows the measured
    times. MAD is the median absolute deviation. The first `warmup` replies have `first_seconds`:
    the first call of a function on a worker also instantiates its graph there.
    """

    first_seconds: float = 60.0
    floor_seconds: float = 5.0
    spreads: float = 8.0
    warmup: int = 3
    history: int = 64
    definition: int = -1
    """The cluster definition under which the latest call with a reply began."""
    _times: deque[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._times = deque(maxlen=self.history)

    def observe(self, seconds: float, definition: int = 0) -> None:
        """Record the time of one reply to a call that began under this cluster definition."""
        self._times.append(seconds)
        self.definition = definition

    @property
    def median_seconds(self) -> float | None:
        """Median of the replies seen, None before the first."""
        if self._times:
            return median(self._times)
        return None

    def seconds(self) -> float:
        """Wait for the next reply."""
        if len(self._times) < self.warmup:
            return self.first_seconds
        middle = median(self._times)
        deviation = median(abs(time - middle) for time in self._times)
        return max(self.floor_seconds, 2 * middle, middle + self.spreads * deviation)


@dataclass
class Probation:
    """The failures of a worker since its last healthy stretch, and the wait after each.

    A node that keeps dying is probed ever less often, but never given up: Pis reboot (horovod
    PR#3319). A healthy stretch has `healthy_replies` and lasts `healthy_waits` times the latest
    wait. One reply is not enough: a worker that dies at every second item would return at once,
    again and again.
    """

    backoff: Backoff = field(default_factory=Backoff)
    healthy_replies: int = 10
    healthy_waits: float = 4.0
    failures: int = 0

    def failed(self) -> float:
        """Count a failure and return the seconds to wait now."""
        self.failures += 1
        return self.backoff.seconds(self.failures)

    def replied(self, replies: int, seconds: float) -> None:
        """Forget the failures if `replies` in `seconds` since it joined are a healthy stretch."""
        latest_wait = self.backoff.seconds(self.failures)
        if replies >= self.healthy_replies and seconds >= self.healthy_waits * latest_wait:
            self.failures = 0


@dataclass
class Worker:
    """The state of one worker."""

    task: int
    deadlines: dict[str, AdaptiveDeadline] = field(default_factory=dict)
    """Deadlines by function: the times of one say nothing about another."""
    phase: Phase = Phase.ABSENT
    attempt: int | None = None
    item: Item | None = None
    definition: int = 0
    """The cluster definition under which the call of its item began."""
    due: float = 0.0
    """Time at which the present phase runs out; for an absent worker the time from which it may
    come back."""
    probation: Probation = field(default_factory=Probation)
    departures: int = 0
    """Number of times that it left the cluster without a drain."""
    served: int = 0
    """Replies since it joined."""
    joined: float = 0.0
    """Time at which it joined."""
    draining: bool = False
    """Whether it is drained once it is idle and another worker can take its work."""

    def change(self, phase: Phase, cause: Cause) -> None:
        """Enter `phase`.

        Raises IllegalPhaseChange if `cause` does not lead there from the present phase.
        """
        if cause not in LEGAL_CHANGES.get((self.phase, phase), ()):
            raise IllegalPhaseChange(self.task, self.phase, phase, cause)
        self.phase = phase
