"""How long to wait for a reply, learnt from the replies that came."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median


@dataclass
class AdaptiveDeadline:
    """A deadline of `median + spreads * MAD` over the latest replies, never below `floor_seconds` or twice the median.

    Fixed timeouts are wrong on every other machine (hivemind#676), so the deadline follows the measured times: MAD
    is the median absolute deviation. Until `warmup` replies have come it is `first_seconds`, because the first call
    of a function on a worker also instantiates its graph there.
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
        """Take the time of one reply into account."""
        self._times.append(seconds)

    @property
    def median_seconds(self) -> float | None:
        """Median of the replies seen, None before the first."""
        return median(self._times) if self._times else None

    def seconds(self) -> float:
        """How long to wait for the next reply."""
        if len(self._times) < self.warmup:
            return self.first_seconds
        middle = median(self._times)
        deviation = median(abs(time - middle) for time in self._times)
        return max(self.floor_seconds, 2 * middle, middle + self.spreads * deviation)


@dataclass
class Backoff:
    """Waiting times that double with each failure up to a ceiling, and start over after a healthy stretch.

    A node that keeps dying is asked ever less often, but never given up for good: Pis reboot (horovod PR#3319). One
    reply makes no stretch: who dies of each second item would be taken back at once for ever. A stretch has
    `healthy_replies` and lasts `healthy_waits` times the latest waiting time.
    """

    first_seconds: float = 0.5
    ceiling_seconds: float = 30.0
    healthy_replies: int = 10
    healthy_waits: float = 4.0
    _failures: int = 0

    @property
    def failures(self) -> int:
        """Failures since the last healthy stretch."""
        return self._failures

    def _wait(self, failures: int) -> float:
        return min(self.ceiling_seconds, self.first_seconds * 2.0 ** min(failures, 30))

    def failed(self) -> float:
        """Count a failure; returns the seconds to wait now."""
        self._failures += 1
        return self._wait(self._failures - 1)

    def replied(self, replies: int, seconds: float) -> None:
        """Forget the failures if so many replies in so many seconds, since it is back, make a healthy stretch."""
        long_enough = not self._failures or seconds >= self.healthy_waits * self._wait(self._failures - 1)
        if replies >= self.healthy_replies and long_enough:
            self._failures = 0
