"""What only a training has, event by event.

Pure: nothing is changed in place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from core.status.parts import PARTS, STALENESS_BOUNDS, TrainCount
from core.status.thinning import StampedEpoch, with_epoch
from core.status.training_events import (
    BatchesCut,
    CheckpointWritten,
    Diverged,
    EpochEnded,
    Planned,
    Restored,
    StoppedEarly,
    TrafficCounted,
    TrainingEvent,
    Updated,
    UpdatesCounted,
)
from core.status.view import EpochView, StalenessView, TrainView

LATEST_PARTS = 256


@dataclass(frozen=True)
class LatestReport:
    """What this coordinator reported last; the one that resumes its training begins without."""

    finite: bool = True
    """Whether the training has not diverged."""
    loss: float | None = None
    """The loss of the latest update."""
    windows_per_second: float | None = None
    """The speed at the latest update, or over the epoch that ended after it."""
    seconds_left: float | None = None
    """Time left after the latest epoch."""
    checkpoint_bytes: int | None = None
    """The size of the latest checkpoint."""


@dataclass(frozen=True)
class Training:
    """What only a training has."""

    mode: str
    model: str
    parameters: int | None = None
    alone: bool = False
    """Whether it has no workers."""
    slots: int = 1
    epochs: tuple[StampedEpoch, ...] = ()
    step_parts: tuple[Mapping[str, float], ...] = ()
    """Seconds of the parts of this coordinator's latest steps."""
    count: TrainCount = field(default_factory=TrainCount)
    stopped: tuple[float, StoppedEarly] | None = None
    latest: LatestReport = field(default_factory=LatestReport)

    def counted(self, **counts: Any) -> "Training":
        """Return the training with these counters."""
        return replace(self, count=replace(self.count, **counts))

    def reported(self, **figures: Any) -> "Training":
        """Return the training with these latest figures."""
        return replace(self, latest=replace(self.latest, **figures))

    def worked(
        self,
        step_parts: Sequence[Mapping[str, float]],
        staleness: Sequence[float],
        latest: Updated | None,
    ) -> "Training":
        """Return the training after steps and updates, the last of which is `latest`."""
        training = self.counted(staleness=self.count.staleness.added(staleness))
        training = replace(training, step_parts=(*self.step_parts, *step_parts)[-LATEST_PARTS:])
        if latest is None:
            return training
        return training.counted(learning_rate=latest.rate).reported(
            loss=latest.loss, windows_per_second=latest.windows_per_second
        )

    def restored(self, checkpoint: Restored) -> "Training":
        """Return the training without the epochs behind the checkpoint: they never happened."""
        epochs = tuple(epoch for epoch in self.epochs if not checkpoint.loses(epoch[1]))
        stopped = self.stopped
        if stopped is not None and checkpoint.loses(stopped[1]):
            stopped = None
        return replace(self, epochs=epochs, stopped=stopped)

    def after(self, event: TrainingEvent, seconds: float) -> "Training":
        """Return the training after `event`, which happened at this second of the run."""
        count = self.count
        match event:
            case BatchesCut(slots):
                return replace(self, slots=slots)
            case Planned(planned, done, rate):
                planned_so = self.counted(planned_epochs=planned, epoch=done, learning_rate=rate)
                return planned_so.reported(finite=True)
            case EpochEnded():
                ended = replace(self, epochs=with_epoch(self.epochs, (seconds, event)))
                return ended.counted(epoch=event.epoch).reported(
                    windows_per_second=event.windows_per_second, seconds_left=event.seconds_left
                )
            case StoppedEarly():
                return replace(self, stopped=(seconds, event))
            case UpdatesCounted(applied, dropped, rolled_back, resumptions):
                return self.counted(
                    updates_applied=applied,
                    duplicates_dropped=dropped,
                    rolled_back=rolled_back,
                    resumptions=resumptions,
                )
            case TrafficCounted(sent, received, steps):
                # What a parameter server sends is what others pull.
                return self.counted(
                    pulled_bytes=count.pulled_bytes + sent,
                    pushed_bytes=count.pushed_bytes + received,
                    counted_steps=count.counted_steps + steps,
                )
            case CheckpointWritten(size_bytes=size):
                written = self.counted(checkpoints=count.checkpoints + 1)
                return written.reported(checkpoint_bytes=size)
            case Diverged():
                return self.reported(finite=False)
            case Restored():
                return self.restored(event)
        assert_never(event)

    def part_seconds(self) -> Mapping[str, float]:
        """Means of the latest steps."""
        if not self.step_parts:
            return self.count.part_seconds
        return {
            part: sum(step.get(part, 0.0) for step in self.step_parts) / len(self.step_parts)
            for part in PARTS
        }

    def view(self) -> TrainView:
        """The entry of the picture."""
        count = self.count
        steps = self.count.counted_steps
        stale = self.count.staleness
        average = stale.mean()
        if average is None:
            staleness = None
        else:
            staleness = StalenessView(STALENESS_BOUNDS, stale.counts, average, stale.maximum)
        return TrainView(
            self.mode,
            self.model,
            self.parameters,
            count.epoch,
            count.planned_epochs,
            count.learning_rate,
            dict(self.part_seconds()),
            tuple(epoch_view(*epoch) for epoch in self.epochs),
            staleness,
            count.pulled_bytes / steps if steps else None,
            count.pushed_bytes / steps if steps else None,
            count.updates_applied,
            count.duplicates_dropped,
            count.rolled_back,
            count.resumptions,
            count.checkpoints,
            None if self.stopped is None else self.stopped[1].why(),
        )


def epoch_view(seconds: float, event: EpochEnded) -> EpochView:
    """The entry of the picture for an epoch that ended at this second."""
    of = event.validation
    view = EpochView(
        event.stage,
        event.epoch,
        event.loss,
        event.accuracy,
        event.rate,
        event.windows_per_second,
        seconds,
    )
    if of is None:
        return view
    return replace(
        view,
        validation_loss=of.loss,
        validation_accuracy=of.accuracy,
        validation_f1_macro=of.f1_macro,
        validation_others=dict(of.others),
        validation_precision_macro=of.precision_macro,
        validation_recall_macro=of.recall_macro,
    )
