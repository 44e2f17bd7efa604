"""What a job leaves for people at its end: `environment.json`, and `report.html` drawn from the files of its folder."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.atomic_write import atomic_write
from cluster.pages.run_files import ENVIRONMENT

log = logging.getLogger(__name__)

REPORT = "report.html"

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
        write_report(folder)
    except Exception as problem:  # a picture of the run must never cost the run
        log.warning("%s: no report: %s: %s", folder / REPORT, type(problem).__name__, problem)


def write_report(folder: Path) -> Path:
    """Draw the report of the run in `folder`; where it lies. Raises ClusterError."""
    from cluster.pages.report import report
    from cluster.pages.run_files import run_of

    path = folder / REPORT
    atomic_write(path, report(run_of(folder)).encode())
    return path
