"""The state of a run, and the picture that it makes. Frozen: `apply` makes the next one of it and of an event."""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta

from cluster.status import events
from cluster.status.events import EpochEnded, Event, FiguresComputed, Stamped, StoppedEarly
from cluster.status.parts import CLASSIFICATION, PARTS, STALENESS_BOUNDS, TrainCount, written
from cluster.status.thinning import Estimates, Samples, Spans, StampedEpoch, mean
from cluster.status.view import (
    ClassesView,
    ConfusionView,
    EpochView,
    EventView,
    JobState,
    NodeView,
    PiView,
    ProgressView,
    RoleView,
    RunView,
    StalenessView,
    SweepView,
    TrainView,
)

LATEST_STEPS = 65
LATEST_PARTS = 256
RATE_SECONDS = 10.0
"""A speed is the mean over this time."""
UNKNOWN, UP, LOST = "unknown", "up", "lost"
COORDINATOR = "coordinator:0"
ENDED = ("done", "cancelled", "failed")
VALIDATION = "validation"
LONGEST_TEXT = 500
"""Characters of a line of the event log."""


@dataclass(frozen=True)
class Pace:
    """How far something is, and how fast it goes since its first report: a resumed run begins in the middle."""

    total: int = 0
    done: int = 0
    first_done: int | None = None
    first_seconds: float = 0.0

    def advanced(self, done: int, seconds: float) -> "Pace":
        """The same with `done` units done."""
        if self.first_done is None:
            return Pace(self.total, done, done, seconds)
        return Pace(self.total, done, self.first_done, self.first_seconds)

    def remaining_seconds(self, seconds: float) -> float | None:
        """At the mean speed so far; None before there is one."""
        if self.first_done is None or self.done <= self.first_done or seconds <= self.first_seconds:
            return None
        each = (seconds - self.first_seconds) / (self.done - self.first_done)
        return each * max(0, self.total - self.done)


@dataclass(frozen=True)
class PresentStage:
    """The present stage."""

    stage: str
    unit: str
    pace: Pace
    validating: bool = False

    def view(self) -> ProgressView:
        """The entry of the picture."""
        return ProgressView(VALIDATION if self.validating else self.stage, self.pace.done, self.pace.total, self.unit)


@dataclass(frozen=True)
class RoleRecord(RoleView):
    """One role process, with what its speed is computed of. `windows_per_second` is its mean once the run has ended."""

    state: str = UNKNOWN
    departures_before: int = 0
    """In the time of earlier coordinators."""
    sampled_windows: int = 0
    """Windows when the latest sample was taken."""
    latest_seconds: tuple[float, ...] = ()
    """Of its latest steps."""
    marks: tuple[tuple[float, int], ...] = ()
    """Windows at times within the latest RATE_SECONDS."""

    def marked(self, seconds: float) -> "RoleRecord":
        """The role after a look at its windows."""
        marks = (*(self.marks if self.windows else ()), (seconds, self.windows))  # before its first window it waited
        late = sum(at <= seconds - RATE_SECONDS for at, _ in marks[1:-1])
        return replace(self, marks=marks[late:])

    def rate(self) -> float | None:
        """Windows per second lately; None if that is unknown."""
        if self.windows_per_second is not None or len(self.marks) < 2 or not self.windows:
            return self.windows_per_second
        (begin, before), (end, now) = self.marks[0], self.marks[-1]
        return (now - before) / (end - begin) if end > begin else None

    def median_seconds(self) -> float | None:
        """Of its latest steps."""
        return statistics.median(self.latest_seconds) if self.latest_seconds else None

    def view(self) -> RoleView:
        """The entry of the picture."""
        known = {shown.name: getattr(self, shown.name) for shown in fields(RoleView)}
        return RoleView(**{**known, "windows_per_second": self.rate(), "step_seconds": self.median_seconds()})


def epoch_view(seconds: float, event: EpochEnded) -> EpochView:
    """The entry of the picture for an epoch that ended at this second."""
    of = event.validation
    made = EpochView(
        event.stage, event.epoch, event.loss, event.accuracy, event.rate, event.windows_per_second, seconds
    )  # fmt: skip
    if of is None:
        return made
    return replace(
        made, validation_loss=of.loss, validation_accuracy=of.accuracy, validation_f1_macro=of.f1_macro,
        validation_others=dict(of.others), validation_precision_macro=of.precision_macro,
        validation_recall_macro=of.recall_macro,
    )  # fmt: skip


@dataclass(frozen=True)
class Training:
    """What only a training has."""

    mode: str
    model: str
    parameters: int | None = None
    alone: bool = False
    """Without workers."""
    micro_batches: int = 1
    epochs: tuple[StampedEpoch, ...] = ()
    parts: tuple[Mapping[str, float], ...] = ()
    """Of the latest steps of this coordinator."""
    count: TrainCount = field(default_factory=TrainCount)
    stopped: tuple[float, StoppedEarly] | None = None

    def part_seconds(self) -> Mapping[str, float]:
        """Means of the latest steps."""
        if not self.parts:
            return self.count.part_seconds
        return {part: sum(step.get(part, 0.0) for step in self.parts) / len(self.parts) for part in PARTS}

    def view(self) -> TrainView:
        """The entry of the picture."""
        count, steps, stale = self.count, self.count.counted_steps, self.count.staleness
        average = stale.mean()
        staleness = None if average is None else StalenessView(STALENESS_BOUNDS, stale.counts, average, stale.maximum)
        return TrainView(
            self.mode, self.model, self.parameters, count.epoch, count.planned_epochs, count.learning_rate,
            dict(self.part_seconds()), tuple(epoch_view(*epoch) for epoch in self.epochs), staleness,
            count.pulled_bytes / steps if steps else None, count.pushed_bytes / steps if steps else None,
            count.updates_applied, count.duplicates_dropped, count.rolled_back, count.resumptions, count.checkpoints,
            None if self.stopped is None else self.stopped[1].why(),
        )  # fmt: skip


@dataclass(frozen=True)
class Window:
    """Sums since the latest sample, which was taken at `since`; None before the first work."""

    since: float | None = None
    loss: float = 0.0
    losses: int = 0
    staleness: float = 0.0
    steps: int = 0


@dataclass(frozen=True)
class RunState:
    """One run so far; `RunState()` is one of which nothing is known."""

    cluster: str = "unknown"
    job: str = ""
    started: datetime | None = None
    run: str = ""
    unit: str = "windows"
    """What the workers work off, and what is learnt."""
    task_type: str = CLASSIFICATION
    nodes: tuple[NodeView, ...] = ()
    """Without their roles."""
    roles: Mapping[str, RoleRecord] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    """Node by task."""
    state: JobState = "preparing"
    reason: str | None = None
    ended_seconds: float | None = None
    training: Training | None = None
    planned_samples: int | None = None
    progress: PresentStage | None = None
    drawing_since: float | None = None
    """When the stage of the pi job began."""
    samples: Samples = field(default_factory=Samples)
    window: Window = field(default_factory=Window)
    estimates: Estimates = field(default_factory=Estimates)
    spans: Spans = field(default_factory=Spans)
    lines: tuple[Stamped, ...] = ()
    """Events of the event log."""
    evaluations: dict[str, tuple[float, FiguresComputed]] = field(default_factory=dict)
    """The latest by split, in the order in which they came."""
    live: int = 0
    sweep: SweepView | None = None

    def moment(self, seconds: float) -> datetime:
        """The time of a second of the run."""
        return (self.started or datetime(1970, 1, 1, tzinfo=UTC)) + timedelta(seconds=seconds)

    def remaining_seconds(self, seconds: float) -> float | None:
        """Of the present stage, at its pace so far; of a sweep what its runs say."""
        if self.sweep is not None and self.state not in ENDED:
            return self.sweep.remaining_seconds
        return None if self.progress is None or self.state in ENDED else self.progress.pace.remaining_seconds(seconds)

    def rate(self) -> float | None:
        """Windows per second of all roles."""
        if self.state in ENDED:
            return mean(sample.windows_per_second for sample in self.samples.kept if sample.windows_per_second > 0)
        known = [rate for role in self.roles.values() if (rate := role.rate()) is not None]
        return sum(known) if known else None

    def figures(self) -> dict[str, dict[str, float]]:
        """The latest figures by split."""
        epochs = self.training.epochs if self.training is not None else ()
        figures = {split: found.figures.describe() for split, (_, found) in self.evaluations.items()}
        if epochs:
            figures["train"] = {"loss": epochs[-1][1].loss, "accuracy": epochs[-1][1].accuracy}
        return {
            split: {name: value for name, value in found.items() if value is not None}
            for split, found in figures.items()
        }

    def by_class(self) -> tuple[ConfusionView | None, ClassesView | None]:
        """The matrix of the latest evaluation, or what is known of its classes without one."""
        for _, found in reversed(self.evaluations.values()):
            if found.rows:
                return ConfusionView(found.split, found.labels, found.rows, found.epoch), None
            if found.counts:
                return None, ClassesView(found.split, found.counts, found.mix_ups, found.epoch)
            break
        return None, None

    def event_log(self) -> Iterator[EventView]:
        """The lines of the event log."""
        for seconds, event in self.lines:
            kind, text = line_of(event, seconds) or ("", "")
            shown = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
            yield EventView(iso(self.moment(seconds)), seconds, kind, shown)

    def view(self, seconds: float) -> RunView:
        """All of it, as it is now."""
        elapsed = seconds if self.ended_seconds is None else self.ended_seconds
        confusion, classes = self.by_class()
        nodes = tuple(
            replace(
                node, roles=tuple(role.view() for role in self.roles.values() if self.places[role.task] == node.name)
            )
            for node in self.nodes
        )
        return RunView(
            cluster=self.cluster, run=self.run, job=self.job, state=self.state, reason=self.reason,
            time=iso(self.moment(seconds)), started=iso(self.moment(0.0)),
            elapsed_seconds=elapsed, remaining_seconds=self.remaining_seconds(seconds),
            windows_per_second=self.rate(), progress=self.progress.view() if self.progress is not None else None,
            nodes=nodes, samples=self.samples.kept, spans=self.spans.all(), events=tuple(self.event_log()),
            confusion=confusion, classes=classes, figures=self.figures(), task_type=self.task_type,
            unit="samples" if self.planned_samples is not None else self.unit,
            train=self.training.view() if self.training is not None else None,
            pi=PiView(self.planned_samples, self.estimates.points()) if self.planned_samples is not None else None,
            sweep=self.sweep,
        )  # fmt: skip


def iso(moment: datetime) -> str:
    """ISO 8601, UTC, milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


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
            shown = "" if held_out is None else f", validation {held_out.headline()}"
            return "stage", f"{stage}: epoch {epoch}, loss {written(loss)}{shown}"
        case events.StoppedEarly(stage, epoch):
            return "stage", f"{stage}: stopped early after epoch {epoch}: {event.why()}"
        case events.CheckpointWritten(taken, size, updates):
            return "checkpoint", f"checkpoint of {updates:,} updates, {size / 1e6:.1f} MB in {taken:.2f} s"
        case events.Diverged(reason):
            return "warning", f"diverged: {reason}"
        case events.FaultInjected(fault, target):
            return "fault", f"{fault} on {target}"
        case events.Calibrated(speeds):
            fastest = max(speeds.values(), default=0.0)
            return "stage", f"calibrated {len(speeds)} workers, up to {fastest / 1e6:.1f} M samples/s"
        case events.WorkerChanged(task, change) if change in WORKER_LINES:
            return change, f"{task} {WORKER_LINES[change]}"
        case events.Resumed(last):
            return "resumed", f"another coordinator continues, {seconds - last:.0f} s after the last sign of life"
        case events.Ended(state, reason):
            return state, state if reason is None else f"{state}: {reason}"
    return None


WORKER_LINES = {
    "joined": "joined",
    "suspected": "does not answer in time: suspected",
    "answers": "answers again",
    "left": "left the cluster",
    "drained": "was drained",
}
