"""The picture of a run that is over, from the files in its folder alone.

The folder may be foreign: what does not have its types and bounds is left out.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from pydantic import TypeAdapter

from core.ground.errors import UsageError
from core.ground.files import json_object
from core.status import events
from core.status.apply import apply, replay
from core.status.events import Event, Stamped
from core.status.history import NAME, event_from, read_events
from core.status.parts import FIGURE_KEYS
from core.status.state import ENDED, RunState
from core.status.view import RunView, TrainView

RESULT = "result.json"
LOG = "coordinator.log"
TOLD: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
)
"""What a result says: see there."""
_KINDS = get_type_hints(TrainView, include_extras=True)
_COUNTS = {name: TypeAdapter(_KINDS[name]) for name in (*TOLD["counted"], *TOLD["lacking"])}
KNOWN = {"cluster": "unknown", "nodes": (), "mode": "unknown", "model": "unknown", "stage": "train"}
"""What a result need not say."""
BEGINNING = (events.Began, events.Opened, events.Estimated)
BROKEN = "there is no result: the run was interrupted, or still runs"


def read_run(folder: Path) -> RunView:
    """The picture of a run that is finished or broken, from the files in its folder alone.

    Raises UsageError if the folder holds no run.
    """
    return read_with_result(folder)[0]


def read_with_result(folder: Path) -> tuple[RunView, Mapping[str, Any]]:
    """The picture, and the result of the run: one that is older than its history counts as none.

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
    """A history that has its end is whole; the result says what another one lacks."""
    history = list(read_events(folder))
    state = RunState()
    begun = any(isinstance(event, events.Began) for _, event in history)
    if begun:
        state = replay(history)
        seconds = max(at for at, _ in history)
    elif result is not None or (folder / LOG).is_file():
        seconds = float((result or {}).get("elapsed_seconds") or 0.0)
    else:
        raise UsageError(
            f"{folder}: expected the folder of a run, with {RESULT}, {NAME} or {LOG} in it, found"
            " none"
        )
    if result is not None and _is_older(folder / RESULT, history, state):
        result = None
    lasts = state.state not in ENDED
    for event in (*_told(folder, result or {}), events.Ended("failed", BROKEN)):
        if not isinstance(event, BEGINNING):
            if state.state in ENDED:
                state = state
            else:
                state = apply(state, event, seconds)
        elif not begun:
            state = apply(state, event, 0.0)
    view = state.view(seconds)
    if lasts and result is not None:
        view = _with_classes(view, result)
        if view.train is not None:
            view = replace(view, train=_with_counts(view.train, result))
    return view, result or {}


def _is_older(path: Path, history: list[Stamped], state: RunState) -> bool:
    """Whether another coordinator has continued since and left no result."""
    resumed = [at for at, event in history if isinstance(event, events.Resumed)]
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return bool(resumed) and written < state.moment(resumed[-1])


def _told(folder: Path, result: Mapping[str, Any]) -> Iterator[Event]:
    """Yield what the result and the folder's name say of a run.

    An event whose fields have other types or bounds is left out.
    """
    moment, _, rest = folder.name.partition("-")
    try:
        started = datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        started = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    facts = {**KNOWN, "job": rest.partition("-")[0], "run": folder.name, "started": started}
    if result.get("job", facts["job"]) != "train":
        facts |= {"mode": None, "model": None}
    final = result.get("final") or {}
    numbers = {key: value for key, value in final.items() if _is_number(value)}
    app_figures = {key: value for key, value in numbers.items() if key not in FIGURE_KEYS}
    facts |= {"split": "test", "figures": {**numbers, "others": app_figures}}
    for row in TOLD["events"]:
        for name, places in row.items():
            with suppress(ValueError):
                yield event_from(name, {**facts, **_filled(places, result)})


def _with_classes(view: RunView, result: Mapping[str, Any]) -> RunView:
    """Return the picture with the matrix of the result, if that is one."""
    fields = {"split": "test", "figures": {"loss": 0.0}, **_filled(TOLD["classes"], result)}
    with suppress(ValueError):  # the loss is for the event alone: the picture has the result's
        confusion, classes = apply(RunState(), event_from("figures", fields), 0.0).by_class()
        if confusion or classes:
            return replace(view, confusion=confusion, classes=classes)
    return view


def _with_counts(train: TrainView, result: Mapping[str, Any]) -> TrainView:
    """Return the training with each count of the result that has its type and bounds."""
    lacking = {name: place for name, place in TOLD["lacking"].items() if not getattr(train, name)}
    counts = {}
    for name, value in _filled({**TOLD["counted"], **lacking}, result).items():
        with suppress(ValueError):
            counts[name] = _COUNTS[name].validate_python(value)
    return replace(train, **counts)


def _filled(places: Any, result: Any) -> Any:
    """Return the value at a place; of a table of places, the fields that have one.

    A list stands for itself.
    """
    if isinstance(places, dict):
        values = {field: _filled(place, result) for field, place in places.items()}
        return {field: value for field, value in values.items() if value is not None}
    if isinstance(places, list):
        return places
    for key in places.split("."):
        if isinstance(result, dict):
            result = result.get(key)
        else:
            result = None
    return result


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300
