"""What people look at: the live page, and the reports that jobs leave; both show a RunView.

A job leaves `environment.json` and `report.html` at its end.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.pages.files import ENVIRONMENT, REPORT, is_sweep, run_of
from core.ground.files import atomic_write

log = logging.getLogger(__name__)

Environment = Callable[[], Mapping[str, Any]]
"""Gives what goes into `environment.json`."""


@contextmanager
def with_report(folder: Path, environment: Environment) -> Iterator[None]:
    """Leave a report of a job with its result at its end, whether it failed or not."""
    try:
        yield
    except Exception:
        leave_report(folder, environment)
        raise
    leave_report(folder, environment)


def leave_report(folder: Path, environment: Environment) -> None:
    """Write both, `environment()` first.

    Whatever goes wrong is a warning: the job has its result already.
    """
    try:
        atomic_write(folder / ENVIRONMENT, json.dumps(environment(), indent=2).encode() + b"\n")
        draw_report(folder)
    except Exception as problem:  # a picture of the run must never cost the run
        log.warning("%s: no report: %s: %s", folder / REPORT, type(problem).__name__, problem)


def draw_report(folder: Path) -> None:
    """Write `report.html` of a run or a sweep from its figures. Raises what they make it raise."""
    atomic_write(folder / REPORT, report_of(folder).encode(errors="backslashreplace"))


def report_of(folder: Path) -> str:
    """The report of a run or a sweep. Raises UsageError for a folder of neither."""
    # Drawing takes Jinja, which a job needs at its end alone.
    from cluster.pages.report import report
    from cluster.pages.sweep import sweep_page

    if is_sweep(folder):
        return sweep_page(folder)
    return report(run_of(folder))
