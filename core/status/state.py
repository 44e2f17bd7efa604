"""The state of a run, the picture that it makes, and what an event of a role changes in it.

Frozen: `apply` makes the next one of it and of an event.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from core.status import events
from core.status.events import FiguresComputed, PointsDrawn, Stamped
from core.status.parts import CLASSIFICATION, RoleCount
from core.status.records import (
    COORDINATOR,
    LATEST_STEPS,
    LOST,
    UNKNOWN,
    UP,
    PresentStage,
    RoleRecord,
    Training,
    line_of,
)
from core.status.thinning import (
    AWAY,
    SUSPECTED,
    WORKING,
    Estimates,
    Samples,
    Spans,
    live_workers,
    mean,
)
from core.status.view import (
    ClassesView,
    ConfusionView,
    EventView,
    JobState,
    NodeView,
    PiPoint,
    PiView,
    RunView,
    SweepView,
)

ENDED = ("done", "cancelled", "failed")
LONGEST_TEXT = 500
"""Characters of a line of the event log."""


@dataclass(frozen=True)
class SampleSums:
    """Sums since the latest sample, of which the next one is made."""

    since: float | None = None
    """Time of that sample; None before the first work."""
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
    """Unit of work; `task_type` is what is learnt."""
    task_type: str = CLASSIFICATION
    nodes: tuple[NodeView, ...] = ()
    """Nodes without their roles."""
    roles: Mapping[str, RoleRecord] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    """Node by task."""
    state: JobState = "preparing"
    reason: str | None = None
    ended_seconds: float | None = None
    training: Training | None = None
    planned_samples: int | None = None
    progress: PresentStage = field(default_factory=PresentStage)
    drawing_since: float | None = None
    """Time at which the stage of the pi job began."""
    samples: Samples = field(default_factory=Samples)
    sums: SampleSums = field(default_factory=SampleSums)
    estimates: Estimates = field(default_factory=Estimates)
    spans: Spans = field(default_factory=Spans)
    lines: tuple[Stamped, ...] = ()
    """Events of the event log."""
    evaluations: dict[str, tuple[float, FiguresComputed]] = field(default_factory=dict)
    """The latest by split, in the order in which they came."""
    live: int = 0
    sweep: SweepView | None = None
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Samples per second by task, as the latest pi job measured them."""

    def moment(self, seconds: float) -> datetime:
        """The time of a second of the run."""
        return (self.started or datetime(1970, 1, 1, tzinfo=UTC)) + timedelta(seconds=seconds)

    def point(self, event: PointsDrawn, seconds: float) -> PiPoint:
        """Return the estimate of these points, with the time since the first were asked for."""
        drawing = 0.0
        if self.drawing_since is not None:
            drawing = seconds - self.drawing_since
        return PiPoint(event.drawn, drawing, event.estimate, event.standard_error)

    def remaining_seconds(self, seconds: float) -> float | None:
        """Return the time left of the present stage at its pace so far.

        Of a sweep it is what its runs say; None where it is unknown.
        """
        if self.sweep is not None and self.state not in ENDED:
            return self.sweep.remaining_seconds
        if self.state in ENDED or not self.progress.stage:
            return None
        return self.progress.remaining_seconds(seconds)

    def rate(self) -> float | None:
        """Return the windows per second of all roles; None where there are none yet."""
        if self.state in ENDED:
            return mean(
                sample.windows_per_second
                for sample in self.samples.series
                if sample.windows_per_second > 0
            )
        rates = [rate for role in self.roles.values() if (rate := role.rate()) is not None]
        if rates:
            return sum(rates)
        return None

    def figures(self) -> dict[str, dict[str, float]]:
        """The latest figures by split."""
        if self.training is not None:
            epochs = self.training.epochs
        else:
            epochs = ()
        figures = {
            split: evaluated.figures.describe()
            for split, (_, evaluated) in self.evaluations.items()
        }
        if epochs:
            figures["train"] = {"loss": epochs[-1][1].loss, "accuracy": epochs[-1][1].accuracy}
        return {
            split: {name: value for name, value in evaluated.items() if value is not None}
            for split, evaluated in figures.items()
        }

    def by_class(self) -> tuple[ConfusionView | None, ClassesView | None]:
        """The matrix of the latest evaluation, or what is known of its classes without one."""
        for _, evaluation in reversed(self.evaluations.values()):
            if evaluation.rows:
                return ConfusionView(
                    evaluation.split, evaluation.labels, evaluation.rows, evaluation.epoch
                ), None
            if evaluation.counts:
                return None, ClassesView(
                    evaluation.split, evaluation.counts, evaluation.mix_ups, evaluation.epoch
                )
            break
        return None, None

    def event_log(self) -> Iterator[EventView]:
        """The lines of the event log."""
        for seconds, event in self.lines:
            kind, text = line_of(event, seconds) or ("", "")
            if len(text) <= LONGEST_TEXT:
                cut_text = text
            else:
                cut_text = f"{text[: LONGEST_TEXT - 1]}…"
            yield EventView(iso(self.moment(seconds)), seconds, kind, cut_text)

    def view(self, seconds: float) -> RunView:
        """Return all of it, as it is now."""
        if self.ended_seconds is None:
            elapsed = seconds
        else:
            elapsed = self.ended_seconds
        confusion, classes = self.by_class()
        nodes = tuple(
            replace(
                node,
                roles=tuple(
                    role.view()
                    for role in self.roles.values()
                    if self.places[role.task] == node.name
                ),
            )
            for node in self.nodes
        )
        return RunView(
            cluster=self.cluster,
            run=self.run,
            job=self.job,
            state=self.state,
            reason=self.reason,
            time=iso(self.moment(seconds)),
            started=iso(self.moment(0.0)),
            elapsed_seconds=elapsed,
            remaining_seconds=self.remaining_seconds(seconds),
            windows_per_second=self.rate(),
            progress=self.progress.view(),
            nodes=nodes,
            samples=self.samples.series,
            spans=self.spans.all(),
            events=tuple(self.event_log()),
            confusion=confusion,
            classes=classes,
            figures=self.figures(),
            task_type=self.task_type,
            unit="samples" if self.planned_samples is not None else self.unit,
            train=self.training.view() if self.training is not None else None,
            pi=(
                PiView(self.planned_samples, self.estimates.points())
                if self.planned_samples is not None
                else None
            ),
            sweep=self.sweep,
        )


def iso(moment: datetime) -> str:
    """ISO 8601, UTC, milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


RoleEvent = events.Looked | events.WorkerChanged | events.RoleSeen | events.Evaluated
SPAN_OF_CHANGE = {"working": WORKING, "joined": WORKING, "answers": WORKING, "suspected": SUSPECTED}


def after_role_event(state: RunState, event: RoleEvent, seconds: float) -> RunState:
    """Return the state after `event`, which happened at this second of the run."""
    match event:
        case events.Looked():
            return _looked(state, event, seconds)
        case events.WorkerChanged(task, change, departures):
            if task not in state.roles:
                return state
            spans = state.spans.entered(task, SPAN_OF_CHANGE.get(change, AWAY), seconds)
            return _changed(replace(state, spans=spans), task, departures=departures)
        case events.RoleSeen():
            return _after_answer(state, event)
        case events.Evaluated(task_number, windows, taken):
            return after_steps(state, f"worker:{task_number}", windows, [taken])
    assert_never(event)


def after_steps(
    state: RunState, task: str, windows: int, step_seconds: Sequence[float]
) -> RunState:
    """Return the state after steps of this task, which took so many seconds each."""
    role = state.roles.get(task)
    if role is None:
        return state
    steps = (*role.latest_seconds, *step_seconds)[-LATEST_STEPS:]
    return _changed(state, task, windows=role.windows + windows, latest_seconds=steps)


def each_role(state: RunState, changes: Callable[[RoleRecord], Mapping[str, Any]]) -> RunState:
    """Return the state with what `changes(role)` says of each role."""
    changed = {task: replace(role, **changes(role)) for task, role in state.roles.items()}
    return replace(state, roles=changed)


def sampled(role: RoleRecord) -> Mapping[str, Any]:
    """Return what changes in a role when a sample is taken."""
    return {"sampled_windows": role.windows}


def without_coordinator(state: RunState, last: float) -> RunState:
    """Return the state in which nothing is known of the roles since second `last`."""
    spans = state.spans.ended(last)
    for task in state.roles:
        if task.startswith("worker:"):
            spans = spans.entered(task, AWAY, last)

    def unknown(role: RoleRecord) -> Mapping[str, Any]:
        return {
            **sampled(role),
            "departures_before": role.departures,
            "state": UP if role.task == COORDINATOR else UNKNOWN,
            "work": None,
            "windows_per_second": None,
            "marks": (),
        }

    return each_role(replace(state, spans=spans), unknown)


def with_counts(state: RunState, counts: Mapping[str, RoleCount]) -> RunState:
    """Return the state with what an earlier coordinator had counted of each role."""

    def counted(role: RoleRecord) -> Mapping[str, Any]:
        count = counts.get(role.task)
        if count is None:
            return {}
        steps = () if count.step_seconds is None else (count.step_seconds,)
        return {
            "windows": count.windows,
            "sampled_windows": count.windows,
            "departures": count.departures,
            "memory_bytes": count.memory_bytes,
            "latest_seconds": steps,
        }

    return each_role(state, counted)


def _changed(state: RunState, task: str, /, **changes: Any) -> RunState:
    role = state.roles.get(task)
    if role is None:
        return state
    return replace(state, roles={**state.roles, task: replace(role, **changes)})


def _looked(state: RunState, event: events.Looked, seconds: float) -> RunState:
    def seen(role: RoleRecord) -> Mapping[str, Any]:
        marks = role.marks_at(seconds)
        worker = event.workers.get(role.task)
        if worker is None:
            return {"marks": marks}
        return {"marks": marks, "state": worker.phase, "work": worker.work}

    state = each_role(state, seen)
    if event.workers:
        state = replace(state, live=live_workers(event.workers))
    elif state.run and state.training is not None and state.training.alone:
        spans = state.spans.entered(COORDINATOR, WORKING, seconds)
        state = replace(state, live=1, spans=spans)
    began = any(role.windows > role.sampled_windows for role in state.roles.values())
    if state.sums.since is None and began:  # the work so far took an unknown time
        state = each_role(replace(state, sums=SampleSums(seconds)), sampled)
    return state


def _after_answer(state: RunState, event: events.RoleSeen) -> RunState:
    role = state.roles.get(event.task)
    if role is None or (event.task == COORDINATOR and not event.answers):
        return state
    if event.processor:
        name = state.places[event.task]
        nodes = tuple(
            replace(node, processor=event.processor) if node.name == name else node
            for node in state.nodes
        )
        state = replace(state, nodes=nodes)
    now = role.state
    if not event.answers and now == UP:
        now = LOST
    elif event.answers and not event.task.startswith("worker:"):
        now = UP  # the membership says how a worker is
    return _changed(
        state,
        event.task,
        state=now,
        memory_bytes=event.memory_bytes,
        sent_bytes_per_second=event.sent_bytes_per_second,
        received_bytes_per_second=event.received_bytes_per_second,
        busy=event.busy,
    )
