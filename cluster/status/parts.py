"""What events are made of: figures, counters, and types with bounds, because a run's folder may be foreign."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, Field

PARTS = ("pull", "compute", "push", "wait")
STALENESS_BOUNDS = (0, 1, 2, 4, 8, 16, 32, 64)

Seconds = Annotated[float, Field(ge=0.0, le=1e10, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Name = Annotated[str, Field(max_length=500)]
Text = Annotated[str, Field(max_length=20_000)]
Moment = Annotated[AwareDatetime, Field(ge=datetime(1970, 1, 1, tzinfo=UTC), le=datetime(2200, 1, 1, tzinfo=UTC))]


@dataclass(frozen=True)
class Figures:
    """Figures of a classification: macro is the mean over the classes, weighted that over the windows."""

    accuracy: Number
    f1_macro: Number
    f1_weighted: Number
    precision_macro: Number
    precision_weighted: Number
    recall_macro: Number
    recall_weighted: Number
    loss: Number

    def describe(self) -> dict[str, float]:
        """The entry of `result.json`."""
        return asdict(self)

    def line(self) -> str:
        """Accuracy and macro F1 in words."""
        return f"accuracy {self.accuracy:.4f}, macro F1 {self.f1_macro:.4f}"


@dataclass(frozen=True)
class NodeTasks:
    """A machine and the tasks that the inventory gives it."""

    name: Name
    address: Name
    tasks: tuple[Name, ...]


@dataclass(frozen=True)
class Seen:
    """A worker as the membership has it. `departures`: since this coordinator began."""

    phase: str
    departures: int
    work: str | None = None


@dataclass(frozen=True)
class StalenessCount:
    """Steps by staleness: `counts[i]` of them above bound `i - 1` and at most bound `i`."""

    counts: Annotated[tuple[Count, ...], Field(min_length=9, max_length=9)] = (0,) * (len(STALENESS_BOUNDS) + 1)
    total: Number = 0.0
    maximum: Number | None = None

    def added(self, found: Sequence[float]) -> "StalenessCount":
        """With these steps too."""
        counts = list(self.counts)
        for staleness in found:
            counts[bisect_left(STALENESS_BOUNDS, staleness)] += 1
        known = found if self.maximum is None else (self.maximum, *found)
        return StalenessCount(tuple(counts), self.total + sum(found), max(known, default=None))

    def mean(self) -> float | None:
        """In updates; None before the first step."""
        return self.total / sum(self.counts) if any(self.counts) else None


@dataclass(frozen=True)
class RoleCount:
    """What one role process has done so far."""

    windows: Count
    departures: Count
    step_seconds: Seconds | None
    memory_bytes: Count | None


@dataclass(frozen=True)
class TrainCount:
    """The counters of a training."""

    epoch: Count = 0
    planned_epochs: Count = 0
    learning_rate: Number | None = None
    part_seconds: Mapping[Name, Seconds] = field(default_factory=dict)
    pulled_bytes: Count = 0
    pushed_bytes: Count = 0
    counted_steps: Count = 0
    updates_applied: Count | None = None
    duplicates_dropped: Count | None = None
    rolled_back: Count = 0
    resumptions: Count = 0
    checkpoints: Count = 0
    staleness: StalenessCount = StalenessCount()
