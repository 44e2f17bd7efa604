"""One role process as the status knows it, and what changes of a worker make a line of the event log. Pure."""

import statistics
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from cluster.status.spans import AWAY, STATES, SUSPECTED, WORKING
from cluster.status.view import RoleView

LATEST_STEPS = 65
RATE_SECONDS = 10.0
"""A speed is that over so long."""

UNKNOWN, UP, LOST = "unknown", "up", "lost"


@dataclass(frozen=True)
class Seen:
    """A worker as its membership had it at one moment. `departures`: since this coordinator began."""

    phase: str
    departures: int
    work: str | None = None


@dataclass
class Role:
    """What is known of one role process."""

    task: str
    state: str = UNKNOWN
    work: str | None = None
    windows: int = 0
    departures: int = 0
    departures_before: int = 0
    """In the time of earlier coordinators."""
    sampled_windows: int = 0
    """As they were when the latest sample was taken."""
    sent_bytes_per_second: float | None = None
    received_bytes_per_second: float | None = None
    memory_bytes: int | None = None
    mean_rate: float | None = None
    """Over the whole run, once it has ended."""
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST_STEPS))
    marks: deque[tuple[float, int]] = field(default_factory=deque)
    """Windows at times within the latest RATE_SECONDS."""

    def mark(self, seconds: float) -> None:
        """The windows are what they are now."""
        if not self.windows:
            self.marks.clear()  # before the first of them nobody could work
        self.marks.append((seconds, self.windows))
        while len(self.marks) > 2 and self.marks[1][0] <= seconds - RATE_SECONDS:
            self.marks.popleft()

    def rate(self) -> float | None:
        """Windows per second lately; None if that is not known."""
        if self.mean_rate is not None:
            return self.mean_rate
        if len(self.marks) < 2 or not self.windows:
            return None
        (begin, before), (end, now) = self.marks[0], self.marks[-1]
        return (now - before) / (end - begin) if end > begin else None

    def view(self) -> RoleView:
        """As it is shown."""
        return RoleView(
            self.task, self.state, self.work, self.rate(), self.windows,
            statistics.median(self.step_seconds) if self.step_seconds else None,
            self.sent_bytes_per_second, self.received_bytes_per_second, self.memory_bytes, self.departures,
        )  # fmt: skip

    def saw(self, seen: Seen) -> Iterator[tuple[str, str]]:
        """The worker is like that now; what there is to say about it, as kinds and texts of events."""
        before, after = STATES.get(self.state, AWAY), STATES.get(seen.phase, AWAY)
        departures = self.departures_before + seen.departures
        gone_in_between = departures > self.departures
        changed = self.state != seen.phase
        self.state, self.work, self.departures = seen.phase, seen.work, departures
        if seen.phase == "drained" and changed:
            yield "drained", f"{self.task} was drained"
        elif gone_in_between and before != AWAY:
            yield "left", f"{self.task} left the cluster"
            before = AWAY
        if before == AWAY and after != AWAY:
            yield "joined", f"{self.task} joined"
            before = WORKING
        if before == WORKING and after == SUSPECTED:
            yield "suspected", f"{self.task} does not answer in time: suspected"
        elif before == SUSPECTED and after == WORKING:
            yield "answers", f"{self.task} answers again"
