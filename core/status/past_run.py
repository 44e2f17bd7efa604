"""The picture of a run that is over, from the files in its folder alone.

The folder may be foreign: what does not have its types and bounds is left out.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from core.ground.errors import UsageError
from core.ground.files import json_object
from core.status import events
from core.status.apply import apply, replay
from core.status.events import Stamped
from core.status.history import NAME, read_events
from core.status.parts import CLASSIFICATION, Classes, Count, Name, TrainCount, by_class
from core.status.records import Training
from core.status.state import ENDED, RunState
from core.status.view import ClassesView, ConfusionView, PiPoint, RunView, StalenessView, TrainView

RESULT = "result.json"
LOG = "coordinator.log"
_STOPPED = TypeAdapter(events.StoppedEarly)
_LABELS = TypeAdapter(tuple[Name, ...])
_ROWS = TypeAdapter(tuple[tuple[Count, ...], ...])
BROKEN = "there is no result: the run was interrupted, or still runs"


def read_run(folder: Path) -> RunView:
    """The picture of a run that is finished or broken, from the files in its folder alone.

    Raises UsageError if the folder holds no run.
    """
    return read_with_result(folder)[0]


def read_with_result(folder: Path) -> tuple[RunView, Mapping[str, Any]]:
    """The picture, and the result that it has figures of: an older one counts as none.

    Raises as `read_run` does.
    """
    result = json_object(folder / RESULT)
    try:
        return _read_run(folder, result)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        if result is None:
            raise
        return _read_run(folder, None)  # the result is no job's


def _read_run(folder: Path, result: dict[str, Any] | None) -> tuple[RunView, Mapping[str, Any]]:
    history = list(read_events(folder))
    if any(isinstance(event, events.Began) for _, event in history):
        state = replay(history)
        seconds = max(at for at, _ in history)
        result = _newer(folder, result, history)
    elif result is not None or (folder / LOG).is_file():
        state, seconds = _without_history(folder, result or {})
    else:
        raise UsageError(
            f"{folder}: expected the folder of a run, with {RESULT}, {NAME} or {LOG} in it, found"
            " none"
        )
    if state.state not in ENDED:
        end = events.Ended("failed", BROKEN)
        if result is not None and result.get("status") in ENDED:
            reason = result.get("reason")
            end = events.Ended(result["status"], None if reason is None else str(reason))
        state = apply(state, end, seconds)
    view = state.view(seconds)
    if result is None:
        return view, {}
    return _with_result(view, result), result


def _newer(
    folder: Path, result: dict[str, Any] | None, history: list[Stamped]
) -> dict[str, Any] | None:
    """The result, unless another coordinator has continued since and left none."""
    resumed = [at for at, event in history if isinstance(event, events.Resumed)]
    if result is None or not resumed:
        return result
    written = datetime.fromtimestamp((folder / RESULT).stat().st_mtime, UTC)
    if written >= replay(history).moment(resumed[-1]):
        return result
    return None


def _without_history(folder: Path, result: Mapping[str, Any]) -> tuple[RunState, float]:
    """Return what the result and the folder's name say, of a run without a history.

    A full disk left none, or the run broke early.
    """
    moment, _, rest = folder.name.partition("-")
    job = str(result.get("job") or rest.partition("-")[0])
    try:
        started = datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        started = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    data = result.get("dataset") or {}
    state = RunState(
        cluster=str(result.get("cluster") or "unknown"),
        job=job,
        run=folder.name,
        started=started,
        unit=str(data.get("unit") or "windows"),
        task_type=str(data.get("task") or CLASSIFICATION),
        planned_samples=int(result.get("planned_samples") or 0) if job == "pi" else None,
    )
    if job == "train":
        model = str((result.get("model") or {}).get("name") or "unknown")
        count = TrainCount(planned_epochs=int((result.get("settings") or {}).get("epochs") or 0))
        state = replace(
            state, training=Training(str(result.get("mode") or "unknown"), model, count=count)
        )
    return state, float(result.get("elapsed_seconds") or 0.0)


def _with_result(view: RunView, result: Mapping[str, Any]) -> RunView:
    """The picture with the figures of the result, which count more than those of the history."""
    final = result.get("final") or {}
    classes = _classes_of(result)
    before = view.confusion or view.classes
    if before is not None and before.split == "test":
        epoch = before.epoch
    else:
        epoch = None
    if classes.rows:
        view = replace(
            view, confusion=ConfusionView("test", classes.labels, classes.rows, epoch), classes=None
        )
    elif classes.counts:
        view = replace(
            view,
            confusion=None,
            classes=ClassesView("test", classes.counts, classes.mix_ups, epoch),
        )
    figures = {str(key): float(value) for key, value in final.items() if _is_number(value)}
    if "loss" in figures:
        view = replace(view, figures={**view.figures, "test": figures})
    if view.train is not None:
        view = replace(view, train=_train(view.train, result))
    if (
        view.pi is not None
        and result.get("samples")
        and result.get("estimate") is not None
        and not view.pi.points
    ):
        elapsed = float(result.get("elapsed_seconds") or 0.0)
        point = PiPoint(result["samples"], elapsed, result["estimate"], result["standard_error"])
        view = replace(view, pi=replace(view.pi, points=(point,)))
    return view


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300


def _classes_of(result: Mapping[str, Any]) -> Classes:
    """Return what the result says of the classes; nothing without a matrix of their counts."""
    try:
        labels = _LABELS.validate_python((result.get("dataset") or {}).get("labels"))
        return by_class(labels, _ROWS.validate_python(result.get("confusion")))
    except ValueError:
        return Classes()


def _stopped_early(result: Mapping[str, Any]) -> str | None:
    """Say why the training stopped early, by its result."""
    early = result.get("stopped_early")
    selected = result.get("selected")
    if not isinstance(early, dict) or not isinstance(selected, dict):
        return None
    try:
        stopped = _STOPPED.validate_python(
            {"stage": "train", **early, "best_epoch": selected.get("epoch")}
        )
    except ValidationError:
        return None
    return stopped.why()


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
