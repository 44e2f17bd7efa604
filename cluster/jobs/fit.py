"""The state of one fit. All of it goes into a checkpoint, and a run resumes from it."""

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from cluster.parameters import Vector
from cluster.status.parts import Figures

LATEST = 4096
"""Steps that the median step time is over."""


@dataclass(frozen=True)
class Cursor:
    """The next thing to do: updates of `epoch` from the `done`th on, of the repeated ones when `replaying`."""

    epoch: int = 0
    replaying: bool = False
    done: int = 0


@dataclass
class Staleness:
    """Mean and maximum over all updates, in updates."""

    total: float = 0.0
    count: int = 0
    maximum: float | None = None

    def add(self, staleness: float) -> None:
        """One more update."""
        self.total, self.count = self.total + staleness, self.count + 1
        self.maximum = staleness if self.maximum is None else max(self.maximum, staleness)

    def describe(self) -> dict[str, float | None]:
        """The entry of `result.json`."""
        return {"mean": self.total / self.count if self.count else None, "maximum": self.maximum}


@dataclass
class Fit:
    """The state of a training: `vector` is that of the selected epoch, the last one without validation.

    `losses` (by batch) and `hits` are those of the present epoch.
    """

    vector: Vector
    first_id: int = 0
    epoch: int = 0
    selected: Figures | None = None
    epochs_done: int = 0
    scheduled: int = 0
    windows: int = 0
    train_seconds: float = 0.0
    cursor: Cursor = Cursor()
    losses: dict[int, float] = field(default_factory=dict)
    hits: float = 0.0
    staleness: Staleness = field(default_factory=Staleness)
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST))

    def facts(self) -> dict[str, Any]:
        """Everything but the vector, as JSON."""
        return {
            "first_id": self.first_id,
            "epoch": self.epoch,
            "selected": self.selected.describe() if self.selected else None,
            "epochs_done": self.epochs_done,
            "scheduled": self.scheduled,
            "windows": self.windows,
            "train_seconds": self.train_seconds,
            "cursor": [self.cursor.epoch, self.cursor.replaying, self.cursor.done],
            "losses": [[batch, loss] for batch, loss in self.losses.items()],
            "hits": self.hits,
            "staleness": [self.staleness.total, self.staleness.count, self.staleness.maximum],
            "step_seconds": list(self.step_seconds),
        }

    @classmethod
    def of(cls, facts: dict[str, Any], vector: Vector) -> "Fit":
        """What `facts` were kept of. Raises KeyError, TypeError or ValueError if they are not of this version."""
        epoch, replaying, done = facts["cursor"]
        return cls(
            vector=vector,
            first_id=int(facts["first_id"]),
            epoch=int(facts["epoch"]),
            selected=Figures(**facts["selected"]) if facts["selected"] else None,
            epochs_done=int(facts["epochs_done"]),
            scheduled=int(facts["scheduled"]),
            windows=int(facts["windows"]),
            train_seconds=float(facts["train_seconds"]),
            cursor=Cursor(int(epoch), bool(replaying), int(done)),
            losses={int(batch): float(loss) for batch, loss in facts["losses"]},
            hits=float(facts["hits"]),
            staleness=Staleness(*facts["staleness"]),
            step_seconds=deque(facts["step_seconds"], maxlen=LATEST),
        )

    def throughput(self) -> dict[str, float | None]:
        """The entry of `result.json`."""
        return {
            "windows_per_second": self.windows / self.train_seconds if self.windows and self.train_seconds else None,
            "step_seconds_p50": statistics.median(self.step_seconds) if self.step_seconds else None,
        }
