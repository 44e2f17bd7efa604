"""One worker as the coordinator sees it: its phase, the legal changes of phase, its deadlines.

Pure.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from statistics import median

from core.engine.messages import Item
from core.ground.waiting import Backoff


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
class TimeLimits:
    """The knobs of patience, in seconds.

    A slow worker gets `slow_factor` deadlines before it is fenced.

    `first_reply_seconds` holds for the first replies to each function after a worker joined: its
    graph is instantiated there then.
    """

    first_reply_seconds: float = 60.0
    floor_seconds: float = 5.0
    slow_factor: float = 4.0
    probe_seconds: float = 10.0
    abandon_seconds: float = 20.0
    longest_cooldown_seconds: float = 30.0
    """The longest pause before a worker that keeps failing is probed again."""
    drained_seconds: float = 120.0
    """A drained worker whose process has not ended by then may join again."""


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
    _times: deque[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._times = deque(maxlen=self.history)

    def observe(self, seconds: float) -> None:
        """Record the time of one reply."""
        self._times.append(seconds)

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
