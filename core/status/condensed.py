"""A state as the few events that lead to it, for a history that is rewritten.

What was thinned out is not among them.
"""

from dataclasses import replace

from core.status import events
from core.status.events import Stamped
from core.status.parts import NodeTasks, RoleCount
from core.status.state import RunState


def counted(state: RunState) -> events.Counted:
    """The event that stands for all that is only a number now."""
    training = state.training
    progress = state.progress
    return events.Counted(
        interval_seconds=state.samples.interval_seconds,
        progress=None if progress is None else replace(progress, validating=False).view(),
        roles={
            role.task: RoleCount(
                role.windows, role.departures, role.median_seconds(), role.memory_bytes
            )
            for role in state.roles.values()
        },
        processors={node.name: node.processor for node in state.nodes},
        train=(
            None
            if training is None
            else replace(training.count, part_seconds=training.part_seconds())
        ),
        estimate=state.estimates.latest,
    )


def events_of(state: RunState, seconds: float) -> list[Stamped]:
    """Return events that lead to the same state, without what was thinned out.

    They are a history that is rewritten.
    """
    tasks: dict[str, list[str]] = {node.name: [] for node in state.nodes}
    for task, place in state.places.items():
        tasks[place].append(task)
    training = state.training
    began = events.Began(
        state.cluster,
        state.job,
        state.moment(0.0),
        tuple(NodeTasks(node.name, node.address, tuple(tasks[node.name])) for node in state.nodes),
        training.mode if training else None,
        training.model if training else None,
        state.planned_samples,
        bool(training and training.alone),
    )
    history: list[Stamped] = list(state.lines)
    if state.run and not any(isinstance(event, events.Opened) for _, event in history):
        history.append(
            (
                0.0,
                events.Opened(
                    state.run,
                    state.job,
                    training.parameters if training else None,
                    state.unit,
                    state.task_type,
                ),
            )
        )
    logged_epochs = {
        (at, event.stage, event.epoch)
        for at, event in history
        if isinstance(event, events.EpochEnded)
    }
    for at, epoch in training.epochs if training else ():
        if (at, epoch.stage, epoch.epoch) not in logged_epochs:
            history.append((at, epoch))
    if training and training.stopped and training.stopped not in history:
        history.append(training.stopped)
    history += state.evaluations.values()
    history += [(sample.seconds, sample) for sample in state.samples.series]
    # An estimate has the second at which it was drawn; only their order counts.
    history += [(point.seconds, events.Estimated(point)) for point in state.estimates.milestones]
    history.sort(key=lambda stamped: stamped[0])
    history += [
        (seconds, events.TimelineKept(task, spans)) for task, spans in state.spans.by_task.items()
    ]
    return [(0.0, began), *history, (seconds, counted(state))]
