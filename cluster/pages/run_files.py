"""The files of a run's folder for people: what a report is drawn from, and what a job leaves at its end."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.atomic_write import atomic_write
from cluster.status.history import RESULT, json_object, read_run
from cluster.status.view import RunView

log = logging.getLogger(__name__)

ENVIRONMENT, REPORT = "environment.json", "report.html"


@dataclass(frozen=True)
class Run:
    """One run, from the files of its folder alone."""

    folder: Path
    view: RunView
    result: Mapping[str, Any] = field(default_factory=dict)
    """`result.json`, empty if there is none."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """`environment.json`, empty if there is none."""

    @property
    def name(self) -> str:
        """Its id: the folder's name."""
        return self.view.run or self.folder.name


def run_of(folder: Path) -> Run:
    """The run in `folder`. Raises UsageError if the folder holds none."""
    return Run(folder, read_run(folder), json_object(folder / RESULT) or {}, json_object(folder / ENVIRONMENT) or {})


def part_of(found: Mapping[str, Any], *keys: str) -> Any:
    """`found[first][second]...`, None where a key is missing, as in interrupted runs."""
    value: Any = found
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def number_of(found: Mapping[str, Any], *keys: str) -> float | None:
    """The same if it is a number."""
    value = part_of(found, *keys)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


Environment = Callable[[], Mapping[str, Any]]
"""Gives what goes into `environment.json`."""


@contextmanager
def reported(folder: Path, environment: Environment) -> Iterator[None]:
    """Around a job with its result: at its end, whether it failed or not, there is a report of it."""
    try:
        yield
    except Exception:
        leave_report(folder, environment)
        raise
    leave_report(folder, environment)


def leave_report(folder: Path, environment: Environment) -> None:
    """Write both, `environment()` first. Whatever goes wrong is a warning: the job has its result already."""
    try:
        atomic_write(folder / ENVIRONMENT, json.dumps(environment(), indent=2).encode() + b"\n")
        from cluster.pages.report import report

        atomic_write(folder / REPORT, report(run_of(folder)).encode())
    except Exception as problem:  # a picture of the run must never cost the run
        log.warning("%s: no report: %s: %s", folder / REPORT, type(problem).__name__, problem)
