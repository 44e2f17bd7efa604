"""What the state of a run is made of: roles, stage, training, and the lines of the event log.

Pure: nothing is changed in place.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import yaml

from core.status import events
from core.status.events import Event
from core.status.parts import PARTS, STALENESS_BOUNDS, TrainCount, TrainFigures, figure_text, shared
from core.status.thinning import StampedEpoch, with_epoch
from core.status.training_events import (
    BatchesCut,
    CheckpointWritten,
    EpochEnded,
    Restored,
    StoppedEarly,
    TrainingEvent,
    Updated,
)
from core.status.view import EpochView, ProgressView, RoleView, StalenessView, TrainView

LATEST_PARTS = 256
FIGURES: Mapping[str, Mapping[str, Mapping[str, str]]] = yaml.safe_load(
    Path(__file__).with_name("figures.yaml").read_text(encoding="utf-8")
)
"""What each event sets of a training: see there."""


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
    latest: Mapping[str, Any] = field(default_factory=dict)
    """What this coordinator reported last; the one that resumes its training begins without."""
    firsts: Mapping[str, int] = field(default_factory=dict)
    """The counts that this coordinator reported first."""

    def counted(self, event: Event) -> "Training":
        """Return the training with what `figures.yaml` says that the event sets of it."""
        rows = FIGURES.get(type(event).__name__, {})
        counts, added, latest, since = (
            {figure: getattr(event, field) for figure, field in rows.get(verb, {}).items()}
            for verb in ("count", "added", "latest", "since")
        )
        sums = {figure: getattr(self.count, figure) + more for figure, more in added.items()}
        firsts = {**since, **self.firsts}
        grown = {figure: count - firsts[figure] for figure, count in since.items()}
        return replace(
            self,
            count=replace(self.count, **counts, **sums),
            firsts=firsts,
            latest={**self.latest, **latest, **grown},
        )

    def after_steps(
        self,
        step_parts: Sequence[Mapping[str, float]],
        staleness: Sequence[float],
        latest: Updated | None,
    ) -> "Training":
        """Return the training after steps and updates, the last of which is `latest`."""
        count = replace(self.count, staleness=self.count.staleness.added(staleness))
        latest_parts = (*self.step_parts, *step_parts)[-LATEST_PARTS:]
        training = replace(self, count=count, step_parts=latest_parts)
        return training if latest is None else training.counted(latest)

    def restored(self, checkpoint: Restored) -> "Training":
        """Return the training without the epochs behind the checkpoint: they never happened."""
        epochs = tuple(epoch for epoch in self.epochs if not checkpoint.loses(epoch[1]))
        stopped = self.stopped
        if stopped is not None and checkpoint.loses(stopped[1]):
            stopped = None
        return replace(self, epochs=epochs, stopped=stopped)

    def after_event(self, event: TrainingEvent, seconds: float) -> "Training":
        """Return the training after `event`, which happened at this second of the run."""
        training = self.counted(event)
        match event:
            case BatchesCut(slots):
                return replace(training, slots=slots)
            case EpochEnded():
                return replace(training, epochs=with_epoch(self.epochs, (seconds, event)))
            case StoppedEarly():
                return replace(training, stopped=(seconds, event))
            case CheckpointWritten():
                written = replace(training.count, checkpoints=self.count.checkpoints + 1)
                return replace(training, count=written)
            case Restored():
                return self.restored(event)
        return training

    @property
    def finite(self) -> bool:
        """Return whether it has not diverged."""
        return "diverged" not in self.latest

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
        steps = count.counted_steps
        stale = count.staleness
        staleness = None
        if (average := stale.mean()) is not None:
            staleness = StalenessView(STALENESS_BOUNDS, stale.counts, average, stale.maximum)
        return TrainView(
            **shared(TrainFigures, count),
            mode=self.mode,
            model=self.model,
            parameters=self.parameters,
            step_parts_seconds=dict(self.part_seconds()),
            epochs=tuple(epoch_view(*epoch) for epoch in self.epochs),
            staleness=staleness,
            pull_bytes_per_step=count.pulled_bytes / steps if steps else None,
            push_bytes_per_step=count.pushed_bytes / steps if steps else None,
            stopped_early=None if self.stopped is None else self.stopped[1].why(),
        )


def epoch_view(seconds: float, event: EpochEnded) -> EpochView:
    """The entry of the picture for an epoch that ended at this second."""
    view = EpochView(
        event.stage,
        event.epoch,
        event.loss,
        event.accuracy,
        event.rate,
        event.windows_per_second,
        seconds,
    )
    if event.validation is None:
        return view
    values = {f"validation_{name}": value for name, value in vars(event.validation).items()}
    return replace(view, **{name: values[name] for name in values.keys() & vars(view).keys()})


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

    def marks_at(self, seconds: float) -> tuple[tuple[float, int], ...]:
        """Return the marks after a look at its windows."""
        marks = (
            *(self.marks if self.windows else ()),
            (seconds, self.windows),
        )  # before its first window it waited
        late = sum(at <= seconds - RATE_SECONDS for at, _ in marks[1:-1])
        return marks[late:]

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
        speeds = {"windows_per_second": self.rate(), "step_seconds": self.median_seconds()}
        return RoleView(**{**shared(RoleView, self), **speeds})


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

    def advanced(self, done: int, seconds: float) -> Self:
        """Return the pace with `done` units done."""
        if self.first_done is None:
            return replace(self, done=done, first_done=done, first_seconds=seconds)
        return replace(self, done=done)

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
class PresentStage(Pace):
    """What the run does at present, and how far that is; without a name there was no stage yet."""

    stage: str = ""
    unit: str = ""
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

    def view(self) -> ProgressView | None:
        """Return the entry of the picture."""
        if not self.stage:
            return None
        return ProgressView(self.name, self.done, self.total, self.unit)


WORKER_LINES = {
    "joined": "joined",
    "suspected": "does not answer in time: suspected",
    "answers": "answers again",
    "left": "left the cluster",
    "drained": "was drained",
}


def line_of(event: Event, seconds: float) -> tuple[str, str] | None:
    """Kind and words of the event's line in the event log; None where it has none."""
    match event:
        case events.Noted(kind, text):
            return kind, text
        case events.Opened():
            return "run", f"{event.job} begins: run {event.run}"
        case events.StageBegan(name, total, unit):
            return "stage", f"{name}: {total:,} {unit}" if total else name
        case events.EpochEnded(stage, epoch, loss, validation=held_out):
            if held_out is None:
                headline = ""
            else:
                headline = f", validation {held_out.headline()}"
            return "stage", f"{stage}: epoch {epoch}, loss {figure_text(loss)}{headline}"
        case events.StoppedEarly():
            return "stage", event.line()
        case events.CheckpointWritten(taken, size, updates):
            return (
                "checkpoint",
                f"checkpoint of {updates:,} updates, {size / 1e6:.1f} MB in {taken:.2f} s",
            )
        case events.Diverged(reason):
            return "warning", f"diverged: {reason}"
        case events.FaultInjected(fault, target):
            return "fault", f"{fault} on {target}"
        case events.Calibrated(speeds):
            fastest = max(speeds.values(), default=0.0)
            return (
                "stage",
                f"calibrated {len(speeds)} workers, up to {fastest / 1e6:.1f} M samples/s",
            )
        case events.WorkerChanged(task, change) if change in WORKER_LINES:
            return change, f"{task} {WORKER_LINES[change]}"
        case events.Resumed(last):
            return (
                "resumed",
                (
                    f"another coordinator continues, {seconds - last:.0f} s after the last sign of"
                    " life"
                ),
            )
        case events.Ended(state, reason):
            return state, state if reason is None else f"{state}: {reason}"
    return None
