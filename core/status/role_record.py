"""One role process of a run: its state, its work, and its speed."""

import statistics
from dataclasses import dataclass, fields, replace

from core.status.view import RoleView

LATEST_STEPS = 65
RATE_SECONDS = 10.0
"""A speed is the mean over this time."""
UNKNOWN = "unknown"
UP = "up"
LOST = "lost"
COORDINATOR = "coordinator:0"


@dataclass(frozen=True)
class RoleRecord(RoleView):
    """One role process, with what its speed is computed of.

    `windows_per_second` is its mean once the run has ended.
    """

    state: str = UNKNOWN
    departures_before: int = 0
    """Departures in the time of earlier coordinators."""
    sampled_windows: int = 0
    """Windows when the latest sample was taken."""
    latest_seconds: tuple[float, ...] = ()
    """Times of its latest steps."""
    marks: tuple[tuple[float, int], ...] = ()
    """Windows at times within the latest RATE_SECONDS."""

    def marked(self, seconds: float) -> "RoleRecord":
        """The role after a look at its windows."""
        marks = (
            *(self.marks if self.windows else ()),
            (seconds, self.windows),
        )  # before its first window it waited
        late = sum(at <= seconds - RATE_SECONDS for at, _ in marks[1:-1])
        return replace(self, marks=marks[late:])

    def rate(self) -> float | None:
        """Windows per second lately; None if that is unknown."""
        if self.windows_per_second is not None or len(self.marks) < 2 or not self.windows:
            return self.windows_per_second
        begin, before = self.marks[0]
        end, now = self.marks[-1]
        if end > begin:
            return (now - before) / (end - begin)
        return None

    def median_seconds(self) -> float | None:
        """Return the median over its latest steps, or None before the first."""
        if self.latest_seconds:
            return statistics.median(self.latest_seconds)
        return None

    def view(self) -> RoleView:
        """The entry of the picture."""
        values = {field.name: getattr(self, field.name) for field in fields(RoleView)}
        return RoleView(
            **{**values, "windows_per_second": self.rate(), "step_seconds": self.median_seconds()}
        )
