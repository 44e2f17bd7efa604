"""The role processes of a run, event by event: who works, who is away, how much each has done."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

from core.status import events
from core.status.parts import RoleCount
from core.status.role_record import COORDINATOR, LATEST_STEPS, LOST, UNKNOWN, UP, RoleRecord
from core.status.state import RunState, SampleSums
from core.status.thinning import AWAY, SUSPECTED, WORKING, live_workers

RoleEvent = events.Looked | events.WorkerChanged | events.RoleSeen | events.Evaluated
SPAN_OF_CHANGE = {"working": WORKING, "joined": WORKING, "answers": WORKING, "suspected": SUSPECTED}


def after(state: RunState, event: RoleEvent, seconds: float) -> RunState:
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
            return worked(state, f"worker:{task_number}", windows, [taken])
    assert_never(event)


def worked(state: RunState, task: str, windows: int, step_seconds: Sequence[float]) -> RunState:
    """Return the state after steps of this task, which took so many seconds each."""
    role = state.roles.get(task)
    if role is None:
        return state
    steps = (*role.latest_seconds, *step_seconds)[-LATEST_STEPS:]
    return _changed(state, task, windows=role.windows + windows, latest_seconds=steps)


def without_coordinator(state: RunState, last: float) -> RunState:
    """Return the state in which nothing is known of the roles since second `last`."""
    spans = state.spans.ended(last)
    records = dict[str, RoleRecord]()
    for task, role in state.roles.items():
        records[task] = replace(
            role,
            departures_before=role.departures,
            state=UP if task == COORDINATOR else UNKNOWN,
            work=None,
            windows_per_second=None,
            marks=(),
            sampled_windows=role.windows,
        )
        if task.startswith("worker:"):
            spans = spans.entered(task, AWAY, last)
    return replace(state, roles=records, spans=spans)


def counted(
    roles: Mapping[str, RoleRecord], counts: Mapping[str, RoleCount]
) -> Iterator[tuple[str, RoleRecord]]:
    """Yield each role with what an earlier coordinator had counted of it."""
    for task, role in roles.items():
        count = counts.get(task)
        if count is None:
            yield task, role
            continue
        steps = () if count.step_seconds is None else (count.step_seconds,)
        yield (
            task,
            replace(
                role,
                windows=count.windows,
                sampled_windows=count.windows,
                departures=count.departures,
                memory_bytes=count.memory_bytes,
                latest_seconds=steps,
            ),
        )


def _changed(state: RunState, task: str, /, **changes: Any) -> RunState:
    role = state.roles.get(task)
    if role is None:
        return state
    return replace(state, roles={**state.roles, task: replace(role, **changes)})


def _looked(state: RunState, event: events.Looked, seconds: float) -> RunState:
    records: dict[str, RoleRecord] = {}
    for task, role in state.roles.items():
        worker = event.workers.get(task)
        if worker is not None:
            role = replace(role, state=worker.phase, work=worker.work)
        records[task] = role.marked(seconds)
    live = state.live
    sums = state.sums
    spans = state.spans
    if event.workers:
        live = live_workers(event.workers)
    elif state.run and state.training is not None and state.training.alone:
        live = 1
        spans = spans.entered(COORDINATOR, WORKING, seconds)
    if sums.since is None and any(role.windows > role.sampled_windows for role in records.values()):
        sums = SampleSums(seconds)  # the work so far took an unknown time
        records = {
            task: replace(role, sampled_windows=role.windows) for task, role in records.items()
        }
    return replace(state, roles=records, live=live, sums=sums, spans=spans)


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
