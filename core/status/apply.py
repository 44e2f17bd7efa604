"""A run, event by event. Pure: `apply` makes the next state of a state and an event.

A live run and one that is read back from its history go through the same function. Terminal,
metrics, page and history show the state that it makes.

A live event implies others, such as a worker that left, a sample a second or an estimate to keep. A
history has them already, so that a run which is read back implies none.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from math import isfinite
from typing import Any, assert_never

from core.status import events
from core.status.events import Event, Stamped
from core.status.parts import Seen
from core.status.records import (
    COORDINATOR,
    UP,
    PresentStage,
    RoleRecord,
    Training,
    line_of,
)
from core.status.state import (
    RoleEvent,
    RunState,
    SampleSums,
    after_role_event,
    after_steps,
    each_role,
    sampled,
    with_counts,
    without_coordinator,
)
from core.status.thinning import (
    AWAY,
    SPAN_OF_PHASE,
    SUSPECTED,
    WORKING,
    Estimates,
    live_workers,
    mean,
    with_line,
)
from core.status.training_events import TrainingEvent
from core.status.view import NodeView, SampleView


def replay(history: Iterable[Stamped], state: RunState = RunState()) -> RunState:  # noqa: B008  it is frozen
    """Return the state after all of these events.

    Steps and updates that follow one another are applied together.
    """
    for busy, group in groupby(history, is_work):
        if busy:
            state = _worked_on(state, group)
        else:
            for seconds, event in group:
                state = apply(state, event, seconds)
    return state


def is_work(stamped: Stamped) -> bool:
    """Whether it is a step or an update: those that follow one another are applied together."""
    return isinstance(stamped[1], events.Stepped | events.Updated)


def apply(state: RunState, event: Event, seconds: float) -> RunState:
    """Return the state after `event`, which happened at this second of the run."""
    if isinstance(event, events.Stepped | events.Updated):
        return _worked_on(state, [(seconds, event)])
    opened_again = isinstance(event, events.Opened) and state.run
    if line_of(event, seconds) is not None and not opened_again:
        state = replace(state, lines=with_line(state.lines, (seconds, event)))
    if isinstance(event, TrainingEvent):
        return _trained(state, event, seconds)
    if isinstance(event, RoleEvent):
        return after_role_event(state, event, seconds)
    match event:
        case events.StageBegan(name, total, unit):
            began = replace(state, progress=PresentStage(total, stage=name, unit=unit))
            if name == "pi":
                return replace(began, drawing_since=seconds)
            return began
        case events.Advanced(done):
            return replace(state, progress=state.progress.advanced(done, seconds))
        case events.Validating(begins):
            return replace(state, progress=replace(state.progress, validating=begins))
        case events.PointsDrawn():
            worker = f"worker:{event.task}"
            state = after_steps(state, worker, event.samples, [event.round_trip_seconds])
            latest = state.point(event, seconds)
            return replace(state, estimates=Estimates(state.estimates.milestones, latest))
        case events.Estimated(point):
            return replace(state, estimates=state.estimates.with_one(point))
        case events.FiguresComputed(split):
            evaluations = {
                other_split: evaluation
                for other_split, evaluation in state.evaluations.items()
                if other_split != split
            }
            return replace(state, evaluations={**evaluations, split: (seconds, event)})
        case events.Calibrated(speeds) | events.SpeedsRead(speeds):
            return replace(state, speeds=dict(speeds))
        case events.Noted() | events.FaultInjected():
            return state
        case events.SweepMoved(sweep):
            return replace(state, sweep=sweep)
        case events.TimelineKept(task, spans):
            return replace(state, spans=state.spans.of(task, spans))
        case SampleView():
            samples = state.samples.with_one(event)
            state = replace(state, samples=samples, sums=SampleSums(seconds))
            return each_role(state, sampled)
        case _:
            return _between_coordinators(state, event, seconds)


def _between_coordinators(
    state: RunState,
    event: events.Began | events.Opened | events.Resumed | events.Ended | events.Counted,
    seconds: float,
) -> RunState:
    match event:
        case events.Began():
            return _began(state, event)
        case events.Opened():
            if state.training is not None:
                training = replace(state.training, parameters=event.parameters)
                state = replace(state, training=training)
            return replace(
                state, run=event.run, unit=event.unit, task_type=event.task_type, state="running"
            )
        case events.Resumed(last):
            return _resumed(state, last)
        case events.Ended():
            return _ended(state, event, seconds)
        case events.Counted():
            return _counted(state, event)
    assert_never(event)


def _worked_on(state: RunState, work: Iterable[Stamped]) -> RunState:
    """Return the state after steps and updates.

    They come thousands of times a second: each is added up in place, all make one state.
    """
    work = list(work)
    steps = [event for _, event in work if isinstance(event, events.Stepped)]
    updates = [(at, event) for at, event in work if isinstance(event, events.Updated)]
    training = state.training
    alone = training is not None and training.alone
    steps_of = defaultdict[int, list[events.Stepped]](list)
    for step in steps:
        steps_of[step.task].append(step)
    for task, steps_of_task in steps_of.items():
        worker = COORDINATOR if alone else f"worker:{task}"
        windows = sum(step.windows for step in steps_of_task)
        state = after_steps(
            state, worker, windows, [step.round_trip_seconds for step in steps_of_task]
        )
    stale = [step.staleness for step in steps]
    losses = [update.loss for _, update in updates if isfinite(update.loss)]
    sums = SampleSums(
        state.sums.since,
        state.sums.loss + sum(losses),
        state.sums.losses + len(losses),
        state.sums.staleness + sum(stale),
        state.sums.steps + len(stale),
    )
    progress = state.progress
    latest = None
    for at, latest in (*updates[:1], *updates[-1:]):
        progress = replace(progress.advanced(latest.done, at), loss=latest.loss)
    if training is not None:
        # A step has no parts where the worker's clock was set meanwhile.
        part_seconds = [step.part_seconds for step in steps if step.part_seconds]
        training = training.after_steps(part_seconds, stale, latest)
    return replace(state, sums=sums, training=training, progress=progress)


def _trained(state: RunState, event: TrainingEvent, seconds: float) -> RunState:
    if isinstance(event, events.Restored):
        state = replace(state, lines=tuple(_surviving(state.lines, event)))
    if isinstance(event, events.EpochEnded):
        state = replace(state, progress=replace(state.progress, epoch=event))
    if state.training is None:
        return state
    return replace(state, training=state.training.after_event(event, seconds))


def _surviving(lines: Iterable[Stamped], restored: events.Restored) -> Iterator[Stamped]:
    """Yield the lines of the event log; those of epochs that never happened as mere words."""
    for at, line in lines:
        noted = None
        if isinstance(line, events.EpochEnded | events.StoppedEarly) and restored.loses(line):
            noted = line_of(line, at)
        if noted is None:
            yield at, line
        else:
            yield at, events.Noted(*noted)


def _began(state: RunState, event: events.Began) -> RunState:
    """Return the state on this cluster, which may be another one than before.

    What its tasks did before stays.
    """
    processors = {node.name: node.processor for node in state.nodes}
    records = {
        task: state.roles.get(task, RoleRecord(task)) for node in event.nodes for task in node.tasks
    }
    if COORDINATOR in records:
        records[COORDINATOR] = replace(records[COORDINATOR], state=UP)
    training = state.training
    if training is None and event.mode is not None:
        training = Training(event.mode, event.model or "", alone=event.alone)
    return replace(
        state,
        cluster=event.cluster,
        job=event.job,
        started=state.started or event.started,
        nodes=tuple(
            NodeView(node.name, node.address, (), processors.get(node.name)) for node in event.nodes
        ),
        places={task: node.name for node in event.nodes for task in node.tasks},
        roles=records,
        training=training,
        planned_samples=event.planned_samples,
    )


def _resumed(state: RunState, last: float) -> RunState:
    training = state.training
    if training is not None:
        training = replace(training, latest={}, firsts={})
    return replace(
        without_coordinator(state, last),
        state="running",
        reason=None,
        ended_seconds=None,
        sums=SampleSums(),
        training=training,
    )


def _ended(state: RunState, event: events.Ended, seconds: float) -> RunState:
    def at_rest(role: RoleRecord) -> Mapping[str, Any]:
        rates = [sample.workers.get(role.task, 0.0) for sample in state.samples.series]
        return {"work": None, "windows_per_second": mean(rate for rate in rates if rate > 0)}

    return replace(
        each_role(state, at_rest),
        state=event.state,
        reason=event.reason,
        ended_seconds=seconds,
        spans=state.spans.ended(seconds),
    )


def _counted(state: RunState, event: events.Counted) -> RunState:
    progress = state.progress
    if (present := event.progress) is not None:
        progress = PresentStage(**vars(present))
    interval = max(state.samples.interval_seconds, event.interval_seconds)
    state = replace(
        with_counts(state, event.roles),
        progress=progress,
        nodes=tuple(
            replace(node, processor=event.processors.get(node.name)) for node in state.nodes
        ),
        samples=replace(state.samples, interval_seconds=interval),
    )
    if event.estimate is not None:
        state = replace(state, estimates=state.estimates.with_one(event.estimate))
    if event.train is None or state.training is None:
        return state
    return replace(state, training=replace(state.training, count=event.train, step_parts=()))


def implied_events(state: RunState, event: Event, seconds: float) -> Iterator[Stamped]:
    """Yield what follows from `event` and has to be applied before it."""
    match event:
        case events.Looked(workers):
            for task, worker in workers.items():
                if task in state.roles:
                    for change in changes_of(state, task, worker):
                        yield seconds, change
            since = state.sums.since
            if since is not None and seconds - since >= state.samples.interval_seconds:
                yield seconds, _sample(state, workers, seconds, seconds - since)
        case events.Resumed(last) if state.samples.series:
            idle = dict.fromkeys(state.samples.series[-1].workers, 0.0)
            yield last, SampleView(last, None, 0.0, None, idle, 0)
            yield seconds, SampleView(seconds, None, 0.0, None, idle, 0)
        case events.PointsDrawn() if state.estimates.keeps(event.drawn):
            yield seconds, events.Estimated(state.point(event, seconds))


def changes_of(state: RunState, task: str, worker: Seen) -> Iterator[events.WorkerChanged]:
    """Yield what has happened to a worker since the look before."""
    role = state.roles[task]
    before = SPAN_OF_PHASE.get(role.state, AWAY)
    after = SPAN_OF_PHASE.get(worker.phase, AWAY)
    departures = role.departures_before + worker.departures
    if worker.phase == "drained" and role.state != "drained":
        yield events.WorkerChanged(task, "drained", departures)
    elif departures > role.departures and before != AWAY:
        yield events.WorkerChanged(task, "left", departures)
        before = AWAY
    elif departures != role.departures or task not in state.spans.by_task:
        yield events.WorkerChanged(task, "absent", departures)
    if before == AWAY and after != AWAY:
        yield events.WorkerChanged(task, "joined", departures)
        before = WORKING
    if before == WORKING and after == SUSPECTED:
        yield events.WorkerChanged(task, "suspected", departures)
    elif before == SUSPECTED and after == WORKING:
        yield events.WorkerChanged(task, "answers", departures)
    elif before != AWAY and after == AWAY and worker.phase != "drained":
        yield events.WorkerChanged(task, "absent", departures)


def _sample(
    state: RunState, workers: Mapping[str, Seen], seconds: float, since: float
) -> SampleView:
    sums = state.sums
    rates = {
        role.task: (role.windows - role.sampled_windows) / since
        for role in state.roles.values()
        if role.windows or role.task.startswith("worker:")
    }
    return SampleView(
        seconds,
        sums.loss / sums.losses if sums.losses else None,
        sum(rates.values()),
        sums.staleness / sums.steps if sums.steps else None,
        rates,
        live_workers(workers) if workers else state.live,
    )
