"""A run, event by event. Pure: `apply` makes the next state of a state and an event.

A live run and one that is read back from its history go through the same function. `implied` gives the events that
follow from a live one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import isfinite
from typing import Any, assert_never

from cluster.status import events
from cluster.status.events import Event, Stamped
from cluster.status.parts import Seen, TrainCount
from cluster.status.state import (
    COORDINATOR,
    LATEST_PARTS,
    LATEST_STEPS,
    LOST,
    UNKNOWN,
    UP,
    Pace,
    PresentStage,
    RoleRecord,
    RunState,
    Training,
    Window,
    line_of,
)
from cluster.status.thinning import (
    AWAY,
    SPAN_OF_PHASE,
    SUSPECTED,
    WORKING,
    Estimates,
    live_workers,
    mean,
    with_epoch,
    with_line,
)
from cluster.status.view import NodeView, PiPoint

SPAN_OF_CHANGE = {"working": WORKING, "joined": WORKING, "answers": WORKING, "suspected": SUSPECTED}


def replay(found: Iterable[Stamped], state: RunState = RunState()) -> RunState:  # noqa: B008  it is frozen
    """The state after all of these events. Steps and updates that follow one another are applied together."""
    for busy, group in groupby(found, lambda stamped: isinstance(stamped[1], events.Stepped | events.Updated)):
        if busy:
            state = _worked_on(state, group)
        else:
            for seconds, event in group:
                state = apply(state, event, seconds)
    return state


def apply(state: RunState, event: Event, seconds: float) -> RunState:
    """The state after `event`, which happened at this second of the run."""
    count = TrainCount() if state.training is None else state.training.count
    match event:
        case events.Stepped() | events.Updated():
            return _worked_on(state, [(seconds, event)])
        case events.Advanced(done):
            pace = Pace() if state.progress is None else state.progress.pace
            return _at_stage(state, pace=pace.advanced(done, seconds))
        case events.PointsDrawn():
            return _drawn(state, event, seconds)
        case events.Evaluated(task, windows, taken):
            return _worked(state, f"worker:{task}", windows, [taken])
        case events.Looked():
            return _looked(state, event, seconds)
        case events.Sampled():
            roles = {task: replace(role, sampled_windows=role.windows) for task, role in state.roles.items()}
            samples = state.samples.with_one(event.view(seconds))
            return replace(state, samples=samples, roles=roles, window=Window(seconds))
        case events.RoleSeen():
            return _role_seen(state, event)
        case events.WorkerChanged():
            return _changed_worker(_noted(state, event, seconds), event, seconds)
        case events.Validating(begins):
            return _at_stage(state, validating=begins)
        case events.BatchesCut(micro_batches):
            return _training(state, micro_batches=micro_batches)
        case events.Planned(planned, epochs_done, rate):
            return _counted_training(state, planned_epochs=planned, epoch=epochs_done, learning_rate=rate)
        case events.EpochEnded():
            epochs = with_epoch(state.training.epochs, (seconds, event)) if state.training is not None else ()
            return _counted_training(_training(_noted(state, event, seconds), epochs=epochs), epoch=event.epoch)
        case events.FiguresComputed(split):
            others = {known: found for known, found in state.evaluations.items() if known != split}
            return replace(state, evaluations={**others, split: (seconds, event)})
        case events.StoppedEarly():
            return _training(_noted(state, event, seconds), stopped=(seconds, event))
        case events.UpdatesCounted(applied, dropped, rolled_back, resumptions):
            return _counted_training(
                state, updates_applied=applied, duplicates_dropped=dropped, rolled_back=rolled_back,
                resumptions=resumptions,
            )  # fmt: skip
        case events.TrafficCounted():
            return _carried(state, event, count)
        case events.CheckpointWritten():
            return _counted_training(_noted(state, event, seconds), checkpoints=count.checkpoints + 1)
        case events.StageBegan(name, total, unit):
            began = replace(state, progress=PresentStage(name, unit, Pace(total)))
            return _noted(replace(began, drawing_since=seconds) if name == "pi" else began, event, seconds)
        case events.Estimated(point):
            return replace(state, estimates=state.estimates.with_one(point))
        case events.Noted() | events.Diverged() | events.FaultInjected() | events.Calibrated():
            return _noted(state, event, seconds)
        case events.Began():
            return _began(state, event)
        case events.Opened():
            return _opened(state, event, seconds)
        case events.Resumed(last):
            return _resumed(_noted(state, event, seconds), last)
        case events.Restored():
            return _restored(state, event)
        case events.Ended():
            return _ended(_noted(state, event, seconds), event, seconds)
        case events.SweepMoved(sweep):
            return replace(state, sweep=sweep)
        case events.TimelineKept(task, spans):
            return replace(state, spans=state.spans.of(task, spans))
        case events.Counted():
            return _counted(state, event, seconds)
    assert_never(event)


def _worked(state: RunState, task: str, windows: int, taken: Sequence[float]) -> RunState:
    role = state.roles.get(task, RoleRecord(task))
    steps = (*role.latest_seconds, *taken)[-LATEST_STEPS:]
    return _role(state, task, windows=role.windows + windows, latest_seconds=steps)


def _worked_on(state: RunState, found: Iterable[Stamped]) -> RunState:
    """After steps and updates. They come thousands of times a second: each is added up in place, all make one state."""
    training, window = state.training, state.window
    alone = training is not None and training.alone
    windows, taken = Counter[int](), defaultdict[int, list[float]](list)
    parts, stale, loss, losses = list[Mapping[str, float]](), list[float](), 0.0, 0
    pace = state.progress.pace if state.progress is not None else Pace()
    rate = training.count.learning_rate if training is not None else None
    for seconds, event in found:
        if isinstance(event, events.Stepped):
            windows[event.task] += event.windows
            taken[event.task].append(event.round_trip_seconds)
            parts.append(event.part_seconds)
            stale.append(event.staleness)
        elif isinstance(event, events.Updated):
            pace, rate = pace.advanced(event.done, seconds), event.rate
            if isfinite(event.loss):
                loss, losses = loss + event.loss, losses + 1
    for task, found_seconds in taken.items():
        state = _worked(state, COORDINATOR if alone else f"worker:{task}", windows[task], found_seconds)
    window = Window(
        window.since,
        window.loss + loss,
        window.losses + losses,
        window.staleness + sum(stale),
        window.steps + len(stale),
    )
    if training is not None:
        count = replace(training.count, staleness=training.count.staleness.added(stale), learning_rate=rate)
        training = replace(training, parts=(*training.parts, *parts)[-LATEST_PARTS:], count=count)
    return _at_stage(replace(state, window=window, training=training), pace=pace)


def _at_stage(state: RunState, **changes: Any) -> RunState:
    return state if state.progress is None else replace(state, progress=replace(state.progress, **changes))


def _role(state: RunState, task: str, /, **changes: Any) -> RunState:
    role = state.roles.get(task)
    return state if role is None else replace(state, roles={**state.roles, task: replace(role, **changes)})


def _drawn(state: RunState, event: events.PointsDrawn, seconds: float) -> RunState:
    state = _worked(state, f"worker:{event.task}", event.samples, [event.round_trip_seconds])
    return replace(state, estimates=Estimates(state.estimates.kept, _point(state, event, seconds)))


def _point(state: RunState, event: events.PointsDrawn, seconds: float) -> PiPoint:
    drawing = 0.0 if state.drawing_since is None else seconds - state.drawing_since
    return PiPoint(event.drawn, drawing, event.estimate, event.standard_error)


def _training(state: RunState, **changes: Any) -> RunState:
    return state if state.training is None else replace(state, training=replace(state.training, **changes))


def _counted_training(state: RunState, **changes: Any) -> RunState:
    return state if state.training is None else _training(state, count=replace(state.training.count, **changes))


def _carried(state: RunState, event: events.TrafficCounted, count: TrainCount) -> RunState:
    return _counted_training(
        state, pulled_bytes=count.pulled_bytes + event.sent_bytes,
        pushed_bytes=count.pushed_bytes + event.received_bytes, counted_steps=count.counted_steps + event.steps,
    )  # fmt: skip


def _restored(state: RunState, event: events.Restored) -> RunState:
    """Epochs behind the checkpoint never happened; their lines stay in the event log as words."""
    kept = {"train": event.train_epochs, "refit": event.refit_epochs}

    def lost(found: events.EpochEnded | events.StoppedEarly) -> bool:
        return found.epoch > kept.get(found.stage, 0)

    lines = tuple(
        (at, events.Noted(*found))
        if isinstance(line, events.EpochEnded | events.StoppedEarly) and lost(line) and (found := line_of(line, at))
        else (at, line)
        for at, line in state.lines
    )
    epochs = tuple((at, epoch) for at, epoch in (state.training.epochs if state.training else ()) if not lost(epoch))
    stopped = state.training.stopped if state.training is not None else None
    stopped = None if stopped is None or lost(stopped[1]) else stopped
    return _training(replace(state, lines=lines), epochs=epochs, stopped=stopped)


def _looked(state: RunState, event: events.Looked, seconds: float) -> RunState:
    roles: dict[str, RoleRecord] = {}
    for task, role in state.roles.items():
        seen = event.workers.get(task)
        roles[task] = (role if seen is None else replace(role, state=seen.phase, work=seen.work)).marked(seconds)
    live, window, spans = state.live, state.window, state.spans
    if event.workers:
        live = live_workers(event.workers)
    elif state.run and state.training is not None and state.training.alone:
        live, spans = 1, spans.entered(COORDINATOR, WORKING, seconds)
    if window.since is None and any(role.windows > role.sampled_windows for role in roles.values()):
        window = Window(seconds)  # the work so far took an unknown time
        roles = {task: replace(role, sampled_windows=role.windows) for task, role in roles.items()}
    return replace(state, roles=roles, live=live, window=window, spans=spans)


def _changed_worker(state: RunState, event: events.WorkerChanged, seconds: float) -> RunState:
    if event.task not in state.roles:
        return state
    spans = state.spans.entered(event.task, SPAN_OF_CHANGE.get(event.change, AWAY), seconds)
    return _role(replace(state, spans=spans), event.task, departures=event.departures)


def _role_seen(state: RunState, event: events.RoleSeen) -> RunState:
    role = state.roles.get(event.task)
    if role is None or (event.task == COORDINATOR and not event.answers):
        return state
    nodes, now = state.nodes, role.state
    if event.processor:
        name = state.places[event.task]
        nodes = tuple(replace(node, processor=event.processor) if node.name == name else node for node in nodes)
    if not event.answers:
        now = LOST if now == UP else now
    elif not event.task.startswith("worker:"):  # the membership says how a worker is
        now = UP
    return _role(
        replace(state, nodes=nodes), event.task, state=now, memory_bytes=event.memory_bytes,
        sent_bytes_per_second=event.sent_bytes_per_second, received_bytes_per_second=event.received_bytes_per_second,
        busy=event.busy,
    )  # fmt: skip


def _noted(state: RunState, event: Event, seconds: float) -> RunState:
    has_line = line_of(event, seconds) is not None
    return replace(state, lines=with_line(state.lines, (seconds, event))) if has_line else state


def _began(state: RunState, event: events.Began) -> RunState:
    """The cluster may be another one than that of the coordinator before; what its tasks did stays."""
    processors = {node.name: node.processor for node in state.nodes}
    roles = {task: state.roles.get(task, RoleRecord(task)) for node in event.nodes for task in node.tasks}
    if COORDINATOR in roles:
        roles[COORDINATOR] = replace(roles[COORDINATOR], state=UP)
    training = state.training
    if training is None and event.mode is not None:
        training = Training(event.mode, event.model or "", alone=event.alone)
    return replace(
        state,
        cluster=event.cluster,
        job=event.job,
        started=state.started or event.started,
        nodes=tuple(NodeView(node.name, node.address, (), processors.get(node.name)) for node in event.nodes),
        places={task: node.name for node in event.nodes for task in node.tasks},
        roles=roles,
        training=training,
        planned_samples=event.planned_samples,
    )


def _opened(state: RunState, event: events.Opened, seconds: float) -> RunState:
    if not state.run:
        state = _noted(state, event, seconds)
    state = _training(state, parameters=event.parameters)
    return replace(state, run=event.run, unit=event.unit, task_type=event.task_type, state="running")


def _resumed(state: RunState, last: float) -> RunState:
    spans, roles = state.spans.ended(last), dict[str, RoleRecord]()
    for task, role in state.roles.items():
        roles[task] = replace(
            role, departures_before=role.departures, state=UP if task == COORDINATOR else UNKNOWN, work=None,
            windows_per_second=None, marks=(), sampled_windows=role.windows,
        )  # fmt: skip
        if task.startswith("worker:"):
            spans = spans.entered(task, AWAY, last)
    return replace(
        state, state="running", reason=None, ended_seconds=None, spans=spans, roles=roles, window=Window()
    )  # fmt: skip


def _ended(state: RunState, event: events.Ended, seconds: float) -> RunState:
    roles = dict[str, RoleRecord]()
    for task, role in state.roles.items():
        rates = [sample.workers.get(task, 0.0) for sample in state.samples.kept]
        roles[task] = replace(role, work=None, windows_per_second=mean(rate for rate in rates if rate > 0))
    return replace(
        state, state=event.state, reason=event.reason, ended_seconds=seconds, roles=roles,
        spans=state.spans.ended(seconds),
    )  # fmt: skip


def _counted(state: RunState, event: events.Counted, seconds: float) -> RunState:
    roles, progress = dict(state.roles), state.progress
    for task, known in event.roles.items():
        if task in roles:
            steps = () if known.step_seconds is None else (known.step_seconds,)
            roles[task] = replace(
                roles[task], windows=known.windows, sampled_windows=known.windows, departures=known.departures,
                memory_bytes=known.memory_bytes, latest_seconds=steps,
            )  # fmt: skip
    if (found := event.progress) is not None:
        progress = PresentStage(found.stage, found.unit, Pace(found.total, found.done))
    state = replace(
        state, roles=roles, progress=progress,
        nodes=tuple(replace(node, processor=event.processors.get(node.name)) for node in state.nodes),
        samples=replace(state.samples, interval_seconds=max(state.samples.interval_seconds, event.interval_seconds)),
    )  # fmt: skip
    if event.estimate is not None:
        state = replace(state, estimates=state.estimates.with_one(event.estimate))
    return state if event.train is None else _training(state, count=event.train, parts=())


def implied(state: RunState, event: Event, seconds: float) -> Iterator[Stamped]:
    """What follows from `event` and has to be applied before it: changes of workers, samples, kept estimates."""
    match event:
        case events.Looked(workers):
            for task, seen in workers.items():
                if task in state.roles:
                    for change in changes_of(state, task, seen):
                        yield seconds, change
            if state.window.since is not None and seconds - state.window.since >= state.samples.interval_seconds:
                yield seconds, _sample(state, workers, seconds - state.window.since)
        case events.Resumed(last) if state.samples.kept:
            idle = dict.fromkeys(state.samples.kept[-1].workers, 0.0)
            yield last, events.Sampled(None, 0.0, None, idle, 0)
            yield seconds, events.Sampled(None, 0.0, None, idle, 0)
        case events.PointsDrawn() if state.estimates.keeps(event.drawn):
            yield seconds, events.Estimated(_point(state, event, seconds))


def changes_of(state: RunState, task: str, seen: Seen) -> Iterator[events.WorkerChanged]:
    """What has happened to a worker since the look before."""
    role = state.roles[task]
    before, after = SPAN_OF_PHASE.get(role.state, AWAY), SPAN_OF_PHASE.get(seen.phase, AWAY)
    departures = role.departures_before + seen.departures
    if seen.phase == "drained" and role.state != "drained":
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
    elif before != AWAY and after == AWAY and seen.phase != "drained":
        yield events.WorkerChanged(task, "absent", departures)


def _sample(state: RunState, workers: Mapping[str, Seen], since: float) -> events.Sampled:
    window = state.window
    rates = {
        role.task: (role.windows - role.sampled_windows) / since
        for role in state.roles.values()
        if role.windows or role.task.startswith("worker:")
    }
    return events.Sampled(
        window.loss / window.losses if window.losses else None,
        sum(rates.values()),
        window.staleness / window.steps if window.steps else None,
        rates,
        live_workers(workers) if workers else state.live,
    )
