"""Events that follow from a state: changes of workers, samples, and a history that is rewritten. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from cluster.status import events
from cluster.status.events import Event, Stamped
from cluster.status.parts import NodeTasks, RoleCount, Seen
from cluster.status.state import RunState
from cluster.status.thinning import AWAY, SPAN_OF_PHASE, SUSPECTED, WORKING, live_workers
from cluster.status.view import PiPoint


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
            drawing = seconds - (seconds if state.drawing_since is None else state.drawing_since)
            yield seconds, events.Estimated(PiPoint(event.drawn, drawing, event.estimate, event.standard_error))


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


def counted(state: RunState) -> events.Counted:
    """The event that stands for all that is only a number now."""
    training, progress = state.training, state.progress
    return events.Counted(
        interval_seconds=state.samples.interval_seconds,
        progress=None if progress is None else replace(progress, validating=False).view(),
        roles={
            role.task: RoleCount(role.windows, role.departures, role.median_seconds(), role.memory_bytes)
            for role in state.roles.values()
        },
        processors={node.name: node.processor for node in state.nodes},
        train=None if training is None else replace(training.count, part_seconds=training.part_seconds()),
        estimate=state.estimates.latest,
    )


def events_of(state: RunState, seconds: float) -> list[Stamped]:
    """Events that lead to the same state, without what was thinned out: a history that is rewritten."""
    tasks: dict[str, list[str]] = {node.name: [] for node in state.nodes}
    for task, place in state.places.items():
        tasks[place].append(task)
    training = state.training
    began = events.Began(
        state.cluster, state.job, state.moment(0.0),
        tuple(NodeTasks(node.name, node.address, tuple(tasks[node.name])) for node in state.nodes),
        training.mode if training else None, training.model if training else None, state.planned_samples,
        bool(training and training.alone),
    )  # fmt: skip
    found: list[Stamped] = list(state.lines)
    if state.run and not any(isinstance(event, events.Opened) for _, event in found):
        found.append((0.0, events.Opened(state.run, state.job, training.parameters if training else None)))
    shown = {(at, event.stage, event.epoch) for at, event in found if isinstance(event, events.EpochEnded)}
    for at, epoch in training.epochs if training else ():
        if (at, epoch.stage, epoch.epoch) not in shown:
            found.append((at, epoch))
    found += state.evaluations.values()
    found += [
        (sample.seconds, events.Sampled(
            sample.loss, sample.windows_per_second, sample.staleness, sample.workers, sample.live
        ))
        for sample in state.samples.kept
    ]  # fmt: skip
    # An estimate has the second at which it was drawn; only their order counts.
    found += [(point.seconds, events.Estimated(point)) for point in state.estimates.kept]
    found.sort(key=lambda stamped: stamped[0])
    found += [(seconds, events.TimelineKept(task, spans)) for task, spans in state.spans.by_task.items()]
    return [(0.0, began), *found, (seconds, counted(state))]
