"""What happens in a training, as frozen events."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from core.status.parts import (
    ClassCount,
    Count,
    Figures,
    MixUp,
    Name,
    Number,
    Seconds,
    Text,
    by_class,
)


@dataclass(frozen=True)
class Restored:
    """A training continues from a checkpoint with these numbers of finished epochs.

    Later ones are trained again.
    """

    train_epochs: Count
    refit_epochs: Count

    def loses(self, event: "EpochEnded | StoppedEarly") -> bool:
        """Whether that epoch lies behind the checkpoint."""
        epochs_of_stage = {"train": self.train_epochs, "refit": self.refit_epochs}
        return event.epoch > epochs_of_stage.get(event.stage, 0)


@dataclass(frozen=True)
class BatchesCut:
    """Each batch of the training is computed in this many slots."""

    slots: Annotated[int, Field(ge=1, lt=2**31)]


@dataclass(frozen=True)
class Planned:
    """A fit of `epochs` epochs begins, or continues after `epochs_done` of them."""

    epochs: Count
    epochs_done: Count
    rate: Number


@dataclass(frozen=True)
class Stepped:
    """A worker has computed a step, or its part of one.

    `staleness` is in updates. `part_seconds`: pull, compute, push, and wait, which is the rest of
    `round_trip_seconds`, the time from the dispatch to the reply; empty if the worker's clock was
    set meanwhile.
    """

    task: int
    windows: int
    staleness: float
    round_trip_seconds: float
    part_seconds: Mapping[str, float]


@dataclass(frozen=True)
class Updated:
    """An update is complete: `done` of `total` of its fit. `loss` is the mean of its batches.

    `windows_per_second` is that of the present stretch.
    """

    id: int
    done: int
    total: int
    loss: float
    rate: float
    windows_per_second: float


@dataclass(frozen=True)
class EpochEnded:
    """An epoch is finished. Loss and accuracy are those of its batches as they were trained.

    `accuracy` is null where the task has none. `rate` is the learning rate of its last update;
    `validation` is null where nothing was held out.
    """

    stage: Name
    epoch: Count
    loss: Number
    accuracy: Number | None
    rate: Number
    windows_per_second: Number
    seconds_left: Seconds
    validation: Figures | None


@dataclass(frozen=True)
class FiguresComputed:
    """The model was evaluated on `split`, `validation` or `test`.

    `rows`: examples by true and predicted class.

    `labels` and `rows` are empty where there is no such matrix: of a regression, of several labels
    at once, and of more classes than a person can read. `counts` has each label then, as far as
    known, `mix_ups` what came most often.
    """

    split: Name
    figures: Figures
    labels: tuple[Name, ...] = ()
    rows: tuple[tuple[Count, ...], ...] = ()
    epoch: Count | None = None
    counts: tuple[ClassCount, ...] = ()
    mix_ups: tuple[MixUp, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError where the matrix does not have a row and a column for each label."""
        for name, value in vars(
            by_class(self.labels, self.rows, self.counts, self.mix_ups)
        ).items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class StoppedEarly:
    """A fit ends after `epoch`: its held-out figures got no better for `patience` epochs.

    `best_epoch` is the one whose parameters are used.
    """

    stage: Name
    epoch: Count
    best_epoch: Count
    patience: Count

    def why(self) -> str:
        """Say why in words."""
        return (
            f"no better for {self.patience} epoch{'s' * (self.patience != 1)} (best: epoch"
            f" {self.best_epoch})"
        )

    def line(self) -> str:
        """Return the line of the event log and of the terminal."""
        return f"{self.stage}: stopped early after epoch {self.epoch}: {self.why()}"


@dataclass(frozen=True)
class UpdatesCounted:
    """Updates in the whole surviving history, as the parameter servers count them."""

    applied: Count
    duplicates_dropped: Count
    rolled_back: Count
    resumptions: Count


@dataclass(frozen=True)
class TrafficCounted:
    """Bytes that the parameter servers sent and received over the latest `steps` steps."""

    sent_bytes: Count
    received_bytes: Count
    steps: Count


@dataclass(frozen=True)
class CheckpointWritten:
    """A checkpoint of the first `next_update` updates is on disk."""

    write_seconds: Seconds
    size_bytes: Count
    next_update: Count


@dataclass(frozen=True)
class Diverged:
    """The loss or a gradient is not finite, or the loss rose and stays risen: the job ends."""

    reason: Text


TrainingEvent = (
    Restored
    | BatchesCut
    | Planned
    | EpochEnded
    | StoppedEarly
    | UpdatesCounted
    | TrafficCounted
    | CheckpointWritten
    | Diverged
)
"""The events that change what is known of the training alone."""
