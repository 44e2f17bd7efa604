"""The files of a run's folder for people: what a report is drawn from."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from core.ground.files import json_object
from core.status.past_run import read_with_result
from core.status.view import RunView

log = logging.getLogger(__name__)

ENVIRONMENT = "environment.json"
REPORT = "report.html"
Column = Mapping[str, Any]
"""`of`: the keys to a value in a result; `as`: how `words.writer_of` writes it."""
ROWS: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("rows.yaml").read_text(encoding="utf-8")
)
"""The rows and columns of pages whose values stand in a result or a state."""


@dataclass(frozen=True)
class StoredRun:
    """One run, from the files of its folder alone."""

    folder: Path
    view: RunView
    result: Mapping[str, Any] = field(default_factory=dict)
    """`result.json`, empty if there is none, or another coordinator has continued since."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """`environment.json`, empty if there is none."""

    @property
    def name(self) -> str:
        """Return the id of the run, its folder's name."""
        return self.view.run or self.folder.name


def run_of(folder: Path) -> StoredRun:
    """The run in `folder`. Raises UsageError if the folder holds none."""
    view, result = read_with_result(folder)
    return StoredRun(folder, view, result, json_object(folder / ENVIRONMENT) or {})


def part_of(result: Mapping[str, Any], *keys: str) -> Any:
    """`found[first][second]...`, None where a key is missing, as in interrupted runs."""
    value: Any = result
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def object_of(result: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return the object at a place of a result, an empty one for anything else."""
    value = part_of(result, *keys)
    if isinstance(value, Mapping):
        return value
    return {}


def number_of(result: Mapping[str, Any], *keys: str) -> float | None:
    """Return the value at a place of a result if it is a number, else None."""
    value = part_of(result, *keys)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
        return float(value)
    return None
