"""Which events follow from a live event: a worker that left, a sample a second, a kept estimate.

A history has them already, so that a run which is read back implies none.
"""

from collections.abc import Iterator, Mapping

from core.status import events
from core.status.events import Event, Stamped
from core.status.parts import Seen
from core.status.state import RunState
from core.status.thinning import AWAY, SPAN_OF_PHASE, SUSPECTED, WORKING, live_workers
from core.status.view import SampleView


def implied(state: RunState, event: Event, seconds: float) -> Iterator[Stamped]:
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
