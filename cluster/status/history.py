"""`history.jsonl` in a run's folder: the events of the run, a line each, written by its coordinator, read by anyone.

A line is a JSON object with `event`, the event's name in `KEPT`, `time` in UTC, `seconds` since the run began, and the
fields of that event. A folder may be foreign: a line that does not match its types and bounds is left out.
"""

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from cluster.atomic_write import atomic_write
from cluster.errors import ClusterError, UsageError
from cluster.status import events
from cluster.status.apply import apply, replay
from cluster.status.classes import Classes, by_class
from cluster.status.events import Event, Stamped
from cluster.status.parts import CLASSIFICATION, Count, Moment, Name, NodeTasks, RoleCount, Seconds, TrainCount
from cluster.status.state import ENDED, RunState, Training, iso
from cluster.status.view import ClassesView, ConfusionView, PiPoint, RunView, StalenessView, TrainView

NAME, RESULT, LOG = "history.jsonl", "result.json", "coordinator.log"
LARGEST_BYTES = 4_000_000
"""A larger file is rewritten, without what was thinned out since."""
MOST_BYTES = 64_000_000
"""What is read of a file."""
LONGEST_LINE = 1_000_000

KEPT: Mapping[str, type[Event]] = {
    "began": events.Began, "opened": events.Opened, "resumed": events.Resumed, "restored": events.Restored,
    "ended": events.Ended, "noted": events.Noted, "stage": events.StageBegan, "cut": events.BatchesCut,
    "planned": events.Planned, "epoch": events.EpochEnded, "figures": events.FiguresComputed,
    "stopped": events.StoppedEarly,
    "totals": events.UpdatesCounted, "traffic": events.TrafficCounted, "checkpoint": events.CheckpointWritten,
    "diverged": events.Diverged, "estimated": events.Estimated, "calibrated": events.Calibrated,
    "fault": events.FaultInjected, "worker": events.WorkerChanged, "sampled": events.Sampled,
    "timeline": events.TimelineKept, "counted": events.Counted,
}  # fmt: skip
"""Events in the file, by their names there."""
_NAMES = {kind: name for name, kind in KEPT.items()}
_STOPPED = TypeAdapter(events.StoppedEarly)
_LABELS, _ROWS = TypeAdapter(tuple[Name, ...]), TypeAdapter(tuple[tuple[Count, ...], ...])


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
    return json.dumps(finite(fields), allow_nan=False, separators=(",", ":"), default=iso).encode() + b"\n"


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
        with open(os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
            is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            content = stream.read(MOST_BYTES) if is_file else b""
    except OSError:
        return iter(())
    return events_in(content.splitlines())


def events_in(lines: Iterable[bytes]) -> Iterator[Stamped]:
    """The events of these lines."""
    return (found for line in lines if (found := event_of(line)) is not None)


class HistoryFile:
    """The file of one run while its coordinator appends to it. A full disk costs the history alone."""

    def __init__(
        self, folder: Path, started: datetime, everything: Callable[[], Sequence[Stamped]], largest: int = LARGEST_BYTES
    ) -> None:  # fmt: skip
        """`everything()`: the events of the whole file, for when it is rewritten."""
        self.path = folder / NAME
        self._started, self._everything, self._largest = started, everything, largest
        self._whole = False
        """Whether the file holds all there is to hold."""
        self._size = 0
        self._floor = 0

    def write(self, found: Sequence[Stamped]) -> bool:
        """Append these events; whether the disk took them. What it refuses comes with the rest once it takes some."""
        if not self._whole or self._size > max(self._largest, 2 * self._floor):
            return self.rewrite()
        if not found:
            return True
        content = self._lines(found)
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
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

    def _lines(self, found: Sequence[Stamped]) -> bytes:
        return b"".join(line_of(event, at, self._started + timedelta(seconds=at)) for at, event in found)


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
        found.append((0.0, events.Opened(
            state.run, state.job, training.parameters if training else None, state.unit, state.task_type
        )))  # fmt: skip
    shown = {(at, event.stage, event.epoch) for at, event in found if isinstance(event, events.EpochEnded)}
    for at, epoch in training.epochs if training else ():
        if (at, epoch.stage, epoch.epoch) not in shown:
            found.append((at, epoch))
    if training and training.stopped and training.stopped not in found:
        found.append(training.stopped)
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


BROKEN = "there is no result: the run was interrupted, or still runs"


def read_run(folder: Path) -> RunView:
    """The picture of a run that is finished or broken, from the files in its folder alone.

    Raises UsageError if the folder holds no run.
    """
    result = json_object(folder / RESULT)
    found = list(read_events(folder))
    if any(isinstance(event, events.Began) for _, event in found):
        state, seconds = replay(found), max(at for at, _ in found)
        if state.state not in ENDED:
            result = _newer(folder, result, found)
    elif result is not None or (folder / LOG).is_file():
        state, seconds = _without_history(folder, result or {})
    else:
        raise UsageError(f"{folder}: expected the folder of a run, with {RESULT}, {NAME} or {LOG} in it, found none")
    if state.state not in ENDED:
        end = events.Ended("failed", BROKEN)
        if result is not None and result.get("status") in ENDED:
            reason = result.get("reason")
            end = events.Ended(result["status"], None if reason is None else str(reason))
        state = apply(state, end, seconds)
    view = state.view(seconds)
    return view if result is None else _with_result(view, result)


def json_object(path: Path) -> dict[str, Any] | None:
    """The object in this file; None where there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _newer(folder: Path, result: dict[str, Any] | None, found: list[Stamped]) -> dict[str, Any] | None:
    """The result, unless another coordinator has continued since and left none."""
    resumed = [at for at, event in found if isinstance(event, events.Resumed)]
    if result is None or not resumed:
        return result
    written = datetime.fromtimestamp((folder / RESULT).stat().st_mtime, UTC)
    return result if written >= replay(found).moment(resumed[-1]) else None


def _without_history(folder: Path, result: Mapping[str, Any]) -> tuple[RunState, float]:
    """What the result and the folder's name say, of a run that a full disk left no history, or that broke early."""
    moment, _, rest = folder.name.partition("-")
    job = str(result.get("job") or rest.partition("-")[0])
    try:
        started = datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        started = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    data = result.get("dataset") or {}
    state = RunState(
        cluster=str(result.get("cluster") or "unknown"), job=job, run=folder.name, started=started,
        unit=str(data.get("unit") or "windows"), task_type=str(data.get("task") or CLASSIFICATION),
        planned_samples=int(result.get("planned_samples") or 0) if job == "pi" else None,
    )  # fmt: skip
    if job == "train":
        model = str((result.get("model") or {}).get("name") or "unknown")
        count = TrainCount(planned_epochs=int((result.get("settings") or {}).get("epochs") or 0))
        state = replace(state, training=Training(str(result.get("mode") or "unknown"), model, count=count))
    return state, float(result.get("elapsed_seconds") or 0.0)


def _with_result(view: RunView, result: Mapping[str, Any]) -> RunView:
    """The picture with the figures of the result, which count more than those of the history."""
    final = result.get("final") or {}
    found = _classes_of(result)
    before = view.confusion or view.classes
    epoch = before.epoch if before is not None and before.split == "test" else None
    if found.rows:
        view = replace(view, confusion=ConfusionView("test", found.labels, found.rows, epoch), classes=None)
    elif found.counts:
        view = replace(view, confusion=None, classes=ClassesView("test", found.counts, found.mix_ups, epoch))
    known = {str(key): float(value) for key, value in final.items() if _is_number(value)}
    if "loss" in known:
        view = replace(view, figures={**view.figures, "test": known})
    if view.train is not None:
        view = replace(view, train=_train(view.train, result))
    if view.pi is not None and result.get("samples") and result.get("estimate") is not None and not view.pi.points:
        elapsed = float(result.get("elapsed_seconds") or 0.0)
        point = PiPoint(result["samples"], elapsed, result["estimate"], result["standard_error"])
        view = replace(view, pi=replace(view.pi, points=(point,)))
    return view


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300


def _classes_of(result: Mapping[str, Any]) -> Classes:
    """What the result says of the classes; nothing if that is not a matrix of their counts."""
    try:
        labels = _LABELS.validate_python((result.get("dataset") or {}).get("labels"))
        return by_class(labels, _ROWS.validate_python(result.get("confusion")))
    except ValueError:
        return Classes()


def _stopped_early(result: Mapping[str, Any]) -> str | None:
    """Why the training stopped early, by its result."""
    early, selected = result.get("stopped_early"), result.get("selected")
    if not isinstance(early, dict) or not isinstance(selected, dict):
        return None
    try:
        found = _STOPPED.validate_python({"stage": "train", **early, "best_epoch": selected.get("epoch")})
    except ValidationError:
        return None
    return found.why()


def _train(train: TrainView, result: Mapping[str, Any]) -> TrainView:
    updates, wire, model = (result.get(key) or {} for key in ("updates", "wire", "model"))
    stale = result.get("staleness") or {}
    staleness = train.staleness
    if staleness is None and stale.get("mean") is not None:
        staleness = StalenessView((), (0,), stale["mean"], stale["maximum"])
    return replace(
        train,
        parameters=model.get("parameters") or train.parameters,
        staleness=staleness,
        stopped_early=train.stopped_early or _stopped_early(result),
        pull_bytes_per_step=wire.get("pull_bytes_per_step"),
        push_bytes_per_step=wire.get("push_bytes_per_step"),
        updates_applied=updates.get("applied"),
        duplicates_dropped=updates.get("duplicates_dropped"),
        rolled_back=int(updates.get("rolled_back") or 0),
        resumptions=int(result.get("resumptions") or 0),
    )
