"""A run, event by event. Pure: `apply` makes the next state of a state and an event.

A live run and one that is read back from its history go through the same function.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import isfinite
from typing import Any, assert_never

from cluster.status import events
from cluster.status.events import Event, Stamped
from cluster.status.state import (
    COORDINATOR,
    LATEST_PARTS,
    LATEST_STEPS,
    LOST,
    UNKNOWN,
    UP,
    Pace,
    PresentStage,
    Role,
    RunState,
    Training,
    Window,
    line_of,
)
from cluster.status.thinning import AWAY, SUSPECTED, WORKING, Estimates, live_workers, mean, with_epoch, with_line
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
    match event:
        case events.Stepped() | events.Updated():
            return _worked_on(state, [(seconds, event)])
        case events.Advanced(done):
            return _advanced(state, done, seconds)
        case events.PointsDrawn():
            return _drawn(state, event, seconds)
        case events.Evaluated(task, windows, taken):
            return _worked(state, f"worker:{task}", windows, [taken])
        case events.Looked():
            return _looked(state, event, seconds)
        case events.Sampled():
            return _sampled(state, event, seconds)
        case events.RoleSeen():
            return _role_seen(state, event)
        case events.WorkerChanged():
            return _changed_worker(_noted(state, event, seconds), event, seconds)
        case events.Validating(begins):
            if state.progress is None:
                return state
            return replace(state, progress=replace(state.progress, validating=begins))
        case events.BatchesCut(micro_batches):
            return _training(state, micro_batches=micro_batches)
        case events.Planned(epochs, epochs_done, rate):
            return _counted_training(state, planned_epochs=epochs, epoch=epochs_done, learning_rate=rate)
        case events.EpochEnded():
            return _epoch(_noted(state, event, seconds), event, seconds)
        case events.FiguresComputed():
            return _evaluated(state, event, seconds)
        case events.UpdatesCounted(applied, dropped, rolled_back, resumptions):
            return _counted_training(
                state, updates_applied=applied, duplicates_dropped=dropped, rolled_back=rolled_back,
                resumptions=resumptions,
            )  # fmt: skip
        case events.TrafficCounted():
            return _traffic(state, event)
        case events.CheckpointWritten():
            checkpoints = state.training.count.checkpoints + 1 if state.training is not None else 0
            return _counted_training(_noted(state, event, seconds), checkpoints=checkpoints)
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
        case events.TimelineKept(task, spans):
            return replace(state, spans=state.spans.of(task, spans))
        case events.Counted():
            return _counted(state, event, seconds)
    assert_never(event)


def _worked(state: RunState, task: str, windows: int, taken: Sequence[float]) -> RunState:
    role = state.roles.get(task)
    if role is None:
        return state
    steps = (*role.step_seconds, *taken)[-LATEST_STEPS:]
    return replace(
        state, roles={**state.roles, task: replace(role, windows=role.windows + windows, step_seconds=steps)}
    )


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
    progress = state.progress and replace(state.progress, pace=pace)
    return replace(state, window=window, training=training, progress=progress)


def _advanced(state: RunState, done: int, seconds: float) -> RunState:
    progress = state.progress
    if progress is None:
        return state
    return replace(state, progress=replace(progress, pace=progress.pace.advanced(done, seconds)))


def _drawn(state: RunState, event: events.PointsDrawn, seconds: float) -> RunState:
    drawing = seconds - (seconds if state.drawing_since is None else state.drawing_since)
    point = PiPoint(event.drawn, drawing, event.estimate, event.standard_error)
    state = _worked(state, f"worker:{event.task}", event.samples, [event.round_trip_seconds])
    return replace(state, estimates=Estimates(state.estimates.kept, point))


def _training(state: RunState, **changes: Any) -> RunState:
    return state if state.training is None else replace(state, training=replace(state.training, **changes))


def _counted_training(state: RunState, **changes: Any) -> RunState:
    return state if state.training is None else _training(state, count=replace(state.training.count, **changes))


def _traffic(state: RunState, event: events.TrafficCounted) -> RunState:
    if state.training is None:
        return state
    count = state.training.count
    return _counted_training(
        state,
        pulled_bytes=count.pulled_bytes + event.sent_bytes,
        pushed_bytes=count.pushed_bytes + event.received_bytes,
        counted_steps=count.counted_steps + event.steps,
    )


def _epoch(state: RunState, event: events.EpochEnded, seconds: float) -> RunState:
    if state.training is None:
        return state
    epochs = with_epoch(state.training.epochs, (seconds, event))
    return _counted_training(_training(state, epochs=epochs), epoch=event.epoch)


def _restored(state: RunState, event: events.Restored) -> RunState:
    """Epochs behind the checkpoint never happened; their lines stay in the event log as words."""
    kept = {"train": event.train_epochs, "refit": event.refit_epochs}

    def lost(epoch: events.EpochEnded) -> bool:
        return epoch.epoch > kept.get(epoch.stage, 0)

    lines = tuple(
        (at, events.Noted(*found))
        if isinstance(line, events.EpochEnded) and lost(line) and (found := line_of(line, at))
        else (at, line)
        for at, line in state.lines
    )
    epochs = tuple((at, epoch) for at, epoch in (state.training.epochs if state.training else ()) if not lost(epoch))
    return _training(replace(state, lines=lines), epochs=epochs)


def _evaluated(state: RunState, event: events.FiguresComputed, seconds: float) -> RunState:
    others = {split: found for split, found in state.evaluations.items() if split != event.split}
    return replace(state, evaluations={**others, event.split: (seconds, event)})


def _looked(state: RunState, event: events.Looked, seconds: float) -> RunState:
    roles: dict[str, Role] = {}
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


def _sampled(state: RunState, event: events.Sampled, seconds: float) -> RunState:
    roles = {task: replace(role, sampled_windows=role.windows) for task, role in state.roles.items()}
    samples = state.samples.with_one(event.view(seconds))
    return replace(state, samples=samples, roles=roles, window=Window(seconds))


def _changed_worker(state: RunState, event: events.WorkerChanged, seconds: float) -> RunState:
    role = state.roles.get(event.task)
    if role is None:
        return state
    spans = state.spans.entered(event.task, SPAN_OF_CHANGE.get(event.change, AWAY), seconds)
    return replace(
        state, spans=spans, roles={**state.roles, event.task: replace(role, departures=event.departures)}
    )  # fmt: skip


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
    seen = replace(
        role, state=now, memory_bytes=event.memory_bytes, sent_bytes_per_second=event.sent_bytes_per_second,
        received_bytes_per_second=event.received_bytes_per_second,
    )  # fmt: skip
    return replace(state, nodes=nodes, roles={**state.roles, event.task: seen})


def _noted(state: RunState, event: Event, seconds: float) -> RunState:
    if line_of(event, seconds) is None:
        return state
    return replace(state, lines=with_line(state.lines, (seconds, event)))


def _began(state: RunState, event: events.Began) -> RunState:
    """The cluster may be another one than that of the coordinator before; what its tasks did stays."""
    processors = {node.name: node.processor for node in state.nodes}
    roles = {task: state.roles.get(task, Role(task)) for node in event.nodes for task in node.tasks}
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
    return replace(_training(state, parameters=event.parameters), run=event.run, state="running")


def _resumed(state: RunState, last: float) -> RunState:
    spans, roles = state.spans.ended(last), dict[str, Role]()
    for task, role in state.roles.items():
        roles[task] = replace(
            role, departures_before=role.departures, state=UP if task == COORDINATOR else UNKNOWN, work=None,
            mean_rate=None, marks=(), sampled_windows=role.windows,
        )  # fmt: skip
        if task.startswith("worker:"):
            spans = spans.entered(task, AWAY, last)
    return replace(
        state, state="running", reason=None, ended_seconds=None, spans=spans, roles=roles, window=Window()
    )  # fmt: skip


def _ended(state: RunState, event: events.Ended, seconds: float) -> RunState:
    roles = {
        task: replace(
            role, work=None,
            mean_rate=mean(rate for sample in state.samples.kept if (rate := sample.workers.get(task, 0.0)) > 0),
        )
        for task, role in state.roles.items()
    }  # fmt: skip
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
                memory_bytes=known.memory_bytes, step_seconds=steps,
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
