"""`history.jsonl` in a run's folder: the events of the run, a line each.

Its coordinator writes it, anyone may read it.

A line is a JSON object with `event`, the event's name in `KEPT`, `time` in UTC, `seconds` since the
run began, and the fields of that event. A folder may be foreign: a line that does not match its
types and bounds is left out.

A history that is rewritten has the few events that lead to the state, without what was thinned out.
"""

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from core.ground.errors import ClusterError
from core.ground.files import atomic_write
from core.status import events
from core.status.events import Event, Stamped
from core.status.parts import (
    Moment,
    Name,
    NodeTasks,
    RoleCount,
    Seconds,
)
from core.status.state import RunState, iso
from core.status.view import SampleView

NAME = "history.jsonl"
LARGEST_BYTES = 4_000_000
"""A larger file is rewritten, without what was thinned out since."""
MOST_BYTES = 64_000_000
"""Bytes that are read of a file."""
LONGEST_LINE = 1_000_000

KEPT: Mapping[str, type[Event]] = {
    "began": events.Began,
    "opened": events.Opened,
    "resumed": events.Resumed,
    "restored": events.Restored,
    "ended": events.Ended,
    "noted": events.Noted,
    "stage": events.StageBegan,
    "cut": events.BatchesCut,
    "planned": events.Planned,
    "epoch": events.EpochEnded,
    "figures": events.FiguresComputed,
    "stopped": events.StoppedEarly,
    "totals": events.UpdatesCounted,
    "traffic": events.TrafficCounted,
    "checkpoint": events.CheckpointWritten,
    "diverged": events.Diverged,
    "estimated": events.Estimated,
    "calibrated": events.Calibrated,
    "fault": events.FaultInjected,
    "worker": events.WorkerChanged,
    "sampled": SampleView,
    "timeline": events.TimelineKept,
    "counted": events.Counted,
}
"""Events in the file, by their names there."""
_NAMES = {kind: name for name, kind in KEPT.items()}


@dataclass(frozen=True)
class _Head:
    """What every line has."""

    event: Annotated[Name, Field(min_length=1)]
    time: Moment
    seconds: Seconds


def is_kept(event: Event) -> bool:
    """Whether the history holds events of this kind."""
    return type(event) in _NAMES


def line_of(event: Event, seconds: float, time: datetime) -> bytes:
    """The event's line. Raises KeyError for an event that the history does not hold."""
    fields = {"event": _NAMES[type(event)], "time": time, "seconds": seconds, **asdict(event)}
    return (
        json.dumps(finite(fields), allow_nan=False, separators=(",", ":"), default=iso).encode()
        + b"\n"
    )


def event_of(line: bytes) -> Stamped | None:
    """The event of a line, with its second; None if the line has none of this version."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        head: _Head = _adapter("").validate_json(line, strict=True)
        event: Event = _adapter(head.event).validate_json(line, strict=True)
    except (ValidationError, KeyError):
        return None
    return head.seconds, event


def event_from(name: str, fields: Mapping[str, Any]) -> Event:
    """The event of this name in the file. Raises ValueError for other types and bounds."""
    event: Event = _adapter(name).validate_python(fields)
    return event


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(KEPT[name] if name else _Head)


def finite(value: Any) -> Any:
    """The value with null for every number that JSON has no word for."""
    match value:
        case dict():
            return {str(key): finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [finite(inner) for inner in value]
        case float() if not isfinite(value):
            return None
        case _:
            return value


def read_events(folder: Path) -> Iterator[Stamped]:
    """The events of a run in the order of the file; none where there is no history."""
    try:
        # Without O_NONBLOCK, opening a pipe in a foreign folder would wait for its writer.
        with open(
            os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb"
        ) as stream:
            is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            if is_file:
                content = stream.read(MOST_BYTES)
            else:
                content = b""
    except OSError:
        return iter(())
    return events_in(content.splitlines())


def events_in(lines: Iterable[bytes]) -> Iterator[Stamped]:
    """The events of these lines."""
    return (stamped for line in lines if (stamped := event_of(line)) is not None)


class HistoryFile:
    """The file of one run while its coordinator appends to it.

    A full disk costs the history alone.
    """

    def __init__(
        self,
        folder: Path,
        started: datetime,
        everything: Callable[[], Sequence[Stamped]],
        largest: int = LARGEST_BYTES,
    ) -> None:
        """Begin a history; `everything()` has the events of the whole file for a rewrite."""
        self.path = folder / NAME
        self._started = started
        self._everything = everything
        self._largest = largest
        self._whole = False
        """Whether the file holds all there is to hold."""
        self._size = 0
        self._floor = 0

    def write(self, stamped_events: Sequence[Stamped]) -> bool:
        """Append these events; whether the disk took them.

        What it refuses comes with the rest once it takes some.
        """
        if not self._whole or self._size > max(self._largest, 2 * self._floor):
            return self.rewrite()
        if not stamped_events:
            return True
        content = self._lines(stamped_events)
        try:
            descriptor = os.open(
                self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
            try:
                written = os.write(descriptor, content)
            finally:
                os.close(descriptor)
        except OSError:
            written = 0
        self._size += written
        self._whole = written == len(content)
        return self._whole

    def rewrite(self) -> bool:
        """Rewrite the whole file; whether the disk took it."""
        content = self._lines(self._everything())
        try:
            atomic_write(self.path, content)
        except ClusterError:
            self._whole = False
            return False
        self._whole, self._size, self._floor = True, len(content), len(content)
        return True

    def _lines(self, stamped_events: Sequence[Stamped]) -> bytes:
        return b"".join(
            line_of(event, at, self._started + timedelta(seconds=at))
            for at, event in stamped_events
        )


def sums_of_state(state: RunState) -> events.Counted:
    """The event that stands for all that is only a number now."""
    training = state.training
    return events.Counted(
        interval_seconds=state.samples.interval_seconds,
        progress=replace(state.progress, validating=False).view(),
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


def condensed_events(state: RunState, seconds: float) -> list[Stamped]:
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
    return [(0.0, began), *history, (seconds, sums_of_state(state))]
