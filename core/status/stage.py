"""The present stage of a run, and how fast it goes."""

from dataclasses import dataclass

from core.status.training_events import EpochEnded
from core.status.view import ProgressView

VALIDATION = "validation"


@dataclass(frozen=True)
class Pace:
    """How far something is, and how fast it goes since its first report.

    A resumed run begins in the middle.
    """

    total: int = 0
    done: int = 0
    first_done: int | None = None
    first_seconds: float = 0.0

    def advanced(self, done: int, seconds: float) -> "Pace":
        """Return the pace with `done` units done."""
        if self.first_done is None:
            return Pace(self.total, done, done, seconds)
        return Pace(self.total, done, self.first_done, self.first_seconds)

    def ratio(self) -> float:
        """Return the share that is done, from 0 to 1; 0 where the total is unknown."""
        if not self.total:
            return 0.0
        return min(1.0, self.done / self.total)

    def remaining_seconds(self, seconds: float) -> float | None:
        """Return the time left at the mean speed so far; None before there is one."""
        if self.first_done is None or self.done <= self.first_done or seconds <= self.first_seconds:
            return None
        seconds_per_unit = (seconds - self.first_seconds) / (self.done - self.first_done)
        return seconds_per_unit * max(0, self.total - self.done)


@dataclass(frozen=True)
class PresentStage:
    """What the run does at present, and how far that is."""

    stage: str
    unit: str
    pace: Pace
    validating: bool = False
    loss: float | None = None
    """The loss of its latest update."""
    epoch: EpochEnded | None = None
    """Epoch that ended last."""

    @property
    def name(self) -> str:
        """Return its name, or that of the validation within it."""
        if self.validating:
            return VALIDATION
        return self.stage

    def view(self) -> ProgressView:
        """Return the entry of the picture."""
        return ProgressView(self.name, self.pace.done, self.pace.total, self.unit)
