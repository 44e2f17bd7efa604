"""What only a training has: its counters, kept as it goes. Pure."""

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.status.samples import with_epoch
from cluster.status.view import EpochView, StalenessView, TrainView

STALENESS_BOUNDS = (0, 1, 2, 4, 8, 16, 32, 64)
LATEST_PARTS = 256
PARTS = ("pull", "compute", "push", "wait")


@dataclass
class StalenessCount:
    """How stale the updates were."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(STALENESS_BOUNDS) + 1))
    total: float = 0.0
    maximum: float | None = None

    def add(self, staleness: float) -> None:
        """One more."""
        self.counts[bisect_left(STALENESS_BOUNDS, staleness)] += 1
        self.total += staleness
        if self.maximum is None or staleness > self.maximum:
            self.maximum = staleness

    def view(self) -> StalenessView | None:
        """As it is shown; None if nothing was counted."""
        count = sum(self.counts)
        if not count:
            return None
        return StalenessView(STALENESS_BOUNDS, tuple(self.counts), self.total / count, self.maximum)


@dataclass
class Training:
    """The state of a training."""

    mode: str
    model: str
    parameters: int | None = None
    epoch: int = 0
    planned_epochs: int = 0
    learning_rate: float | None = None
    parts: deque[Mapping[str, float]] = field(default_factory=lambda: deque(maxlen=LATEST_PARTS))
    earlier_parts: dict[str, float] = field(default_factory=dict)
    """Their means where they come from a file."""
    epochs: list[EpochView] = field(default_factory=list)
    staleness: StalenessCount = field(default_factory=StalenessCount)
    pulled_bytes: int = 0
    pushed_bytes: int = 0
    counted_steps: int = 0
    """Steps over which the bytes were counted."""
    updates_applied: int | None = None
    duplicates_dropped: int | None = None
    rolled_back: int = 0
    resumptions: int = 0
    checkpoints: int = 0

    def add_epoch(self, epoch: EpochView) -> None:
        """One is finished."""
        self.epochs = with_epoch(self.epochs, epoch)
        self.epoch = epoch.epoch

    def part_seconds(self) -> dict[str, float]:
        """Means of the latest steps."""
        if not self.parts:
            return dict(self.earlier_parts)
        return {part: sum(step.get(part, 0.0) for step in self.parts) / len(self.parts) for part in PARTS}

    def facts(self) -> dict[str, Any]:
        """All but the epochs, as JSON."""
        return {
            "mode": self.mode, "model": self.model, "parameters": self.parameters, "epoch": self.epoch,
            "planned_epochs": self.planned_epochs, "learning_rate": self.learning_rate,
            "earlier_parts": self.part_seconds(), "pulled_bytes": self.pulled_bytes,
            "pushed_bytes": self.pushed_bytes, "counted_steps": self.counted_steps,
            "updates_applied": self.updates_applied, "duplicates_dropped": self.duplicates_dropped,
            "rolled_back": self.rolled_back, "resumptions": self.resumptions, "checkpoints": self.checkpoints,
            "staleness": [self.staleness.counts, self.staleness.total, self.staleness.maximum],
        }  # fmt: skip

    def take(self, facts: Mapping[str, Any]) -> None:
        """Go on from `facts()`. Raises KeyError, TypeError or ValueError if they are others."""
        plain = {key: value for key, value in facts.items() if key != "staleness"}
        if plain.keys() - set(self.__dataclass_fields__):
            raise KeyError(f"unknown facts {sorted(plain)}")
        counts, total, maximum = facts["staleness"]
        if len(counts) != len(STALENESS_BOUNDS) + 1:
            raise ValueError(f"{len(counts)} counts of staleness")
        for key, value in plain.items():
            setattr(self, key, value)
        self.staleness = StalenessCount([int(count) for count in counts], float(total), maximum)

    def view(self) -> TrainView:
        """As it is shown."""
        steps = self.counted_steps
        return TrainView(
            self.mode, self.model, self.parameters, self.epoch, self.planned_epochs, self.learning_rate,
            self.part_seconds(), tuple(self.epochs), self.staleness.view(),
            self.pulled_bytes / steps if steps else None, self.pushed_bytes / steps if steps else None,
            self.updates_applied, self.duplicates_dropped, self.rolled_back, self.resumptions, self.checkpoints,
        )  # fmt: skip
