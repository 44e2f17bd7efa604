"""A run read back from the files in its folder: `history.jsonl`, `result.json`, in old folders `events.jsonl`."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cluster.errors import UsageError
from cluster.status.apply import apply, replay
from cluster.status.events import Began, Ended, EpochEnded, Resumed, Stamped
from cluster.status.history_file import NAME, read_events
from cluster.status.parts import Figures
from cluster.status.state import ENDED, RunState, Training
from cluster.status.thinning import StampedEpoch, with_epoch
from cluster.status.view import ConfusionView, PiPoint, RunView, StalenessView, TrainView

RESULT, OLD_EPOCHS, LOG = "result.json", "events.jsonl", "coordinator.log"
BROKEN = "there is no result: the run was interrupted, or still runs"


def read_run(folder: Path) -> RunView:
    """The picture of a run that is finished or broken, from the files in its folder alone.

    Raises UsageError if the folder holds no run.
    """
    result = _result(folder)
    found = list(read_events(folder))
    if any(isinstance(event, Began) for _, event in found):
        state, seconds = replay(found), max(at for at, _ in found)
        if state.state not in ENDED:
            result = _newer(folder, result, found)
    elif result is not None or (folder / LOG).is_file():
        state, seconds = _without_history(folder, result or {})
    else:
        raise UsageError(f"{folder}: expected the folder of a run, with {RESULT}, {NAME} or {LOG} in it, found none")
    if state.state not in ENDED:
        known = result is not None and result.get("status") in ENDED
        end = Ended(result["status"], _text(result.get("reason"))) if result and known else Ended("failed", BROKEN)
        state = apply(state, end, seconds)
    view = state.view(seconds)
    return view if result is None else _with_result(view, result)


def _result(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / RESULT).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _newer(folder: Path, result: dict[str, Any] | None, found: list[Stamped]) -> dict[str, Any] | None:
    """The result, unless another coordinator has continued since and left none."""
    resumed = [at for at, event in found if isinstance(event, Resumed)]
    if result is None or not resumed:
        return result
    written = datetime.fromtimestamp((folder / RESULT).stat().st_mtime, UTC)
    return result if written >= replay(found).moment(resumed[-1]) else None


def _without_history(folder: Path, result: Mapping[str, Any]) -> tuple[RunState, float]:
    """Of a run of an earlier version: what its result says, and its epochs."""
    job = str(result.get("job") or folder.name.partition("-")[2].partition("-")[0])
    model, settings = result.get("model") or {}, result.get("settings") or {}
    training, epochs, started = None, tuple[StampedEpoch, ...](), _started(folder)
    if job == "train":
        for epoch in _epochs(folder, started):
            epochs = with_epoch(epochs, epoch)
        training = Training(str(result.get("mode") or "unknown"), str(model.get("name") or "unknown"), epochs=epochs)
        planned = int(settings.get("epochs") or 0)
        done = epochs[-1][1].epoch if epochs else 0
        training = replace(training, count=replace(training.count, planned_epochs=planned, epoch=done))
    state = RunState(
        cluster=str(result.get("cluster") or "unknown"), job=job, run=folder.name, started=started, training=training,
        planned_samples=int(result.get("planned_samples") or 0) if job == "pi" else None,
    )  # fmt: skip
    return state, max(float(result.get("elapsed_seconds") or 0.0), *(at for at, _ in epochs), 0.0)


def _started(folder: Path) -> datetime:
    try:
        return datetime.strptime(folder.name.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return datetime.fromtimestamp(folder.stat().st_mtime, UTC)


def _epochs(folder: Path, started: datetime) -> Iterator[StampedEpoch]:
    """Earlier versions left a line an epoch."""
    try:
        lines = (folder / OLD_EPOCHS).read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            found = json.loads(line)
            held_out = {name: found.get("validation", {}).get(name) for name in Figures.__dataclass_fields__}
            event = EpochEnded(
                str(found["stage"]), int(found["epoch"]), float(found["loss"]), float(found["accuracy"]),
                float(found["rate"]), float(found["windows_per_second"]), 0.0,
                None if held_out["accuracy"] is None else Figures(**held_out),
            )  # fmt: skip
            yield (datetime.fromisoformat(found["time"]) - started).total_seconds(), event
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            continue


def _with_result(view: RunView, result: Mapping[str, Any]) -> RunView:
    """The picture with the figures of the result, which count more than those of the history."""
    labels = (result.get("dataset") or {}).get("labels")
    rows, final = result.get("confusion"), result.get("final") or {}
    if isinstance(rows, list) and isinstance(labels, list):
        epoch = view.confusion.epoch if view.confusion is not None and view.confusion.split == "test" else None
        confusion = ConfusionView("test", tuple(labels), tuple(tuple(row) for row in rows), epoch)
        view = replace(view, confusion=confusion)
    if final.get("accuracy") is not None:
        known = {key: float(value) for key, value in final.items() if value is not None}
        view = replace(view, figures={**view.figures, "test": known})
    if view.train is not None:
        view = replace(view, train=_train(view.train, result))
    if view.pi is not None and result.get("samples") and result.get("estimate") is not None and not view.pi.points:
        elapsed = float(result.get("elapsed_seconds") or 0.0)
        point = PiPoint(result["samples"], elapsed, result["estimate"], result["standard_error"])
        view = replace(view, pi=replace(view.pi, points=(point,)))
    return view


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
        pull_bytes_per_step=wire.get("pull_bytes_per_step"),
        push_bytes_per_step=wire.get("push_bytes_per_step"),
        updates_applied=updates.get("applied"),
        duplicates_dropped=updates.get("duplicates_dropped"),
        rolled_back=int(updates.get("rolled_back") or 0),
        resumptions=int(result.get("resumptions") or 0),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
