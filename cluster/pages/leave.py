"""What a job leaves for people at its end: `environment.json`, and `report.html` drawn from the files of its folder."""

import json
import logging
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cluster.pages.run_files import ENVIRONMENT
from cluster.whole_file import write_whole

log = logging.getLogger(__name__)

REPORT = "report.html"


@contextmanager
def reported(folder: Path) -> Iterator[None]:
    """Around a job with its result: at its end, whether it failed or not, there is a report of it."""
    try:
        yield
    except Exception:
        leave_report(folder)
        raise
    leave_report(folder)


def leave_report(folder: Path) -> None:
    """Write both. Whatever goes wrong is a warning: the job has its result already."""
    try:
        write_whole(folder / ENVIRONMENT, json.dumps(environment(), indent=2).encode() + b"\n")
        write_report(folder)
    except Exception as problem:  # a picture of the run must never cost the run
        log.warning("%s: no report: %s: %s", folder / REPORT, type(problem).__name__, problem)


def write_report(folder: Path) -> Path:
    """Draw the report of the run in `folder`; where it lies. Raises ClusterError."""
    from cluster.pages.report import report
    from cluster.pages.run_files import run_of

    path = folder / REPORT
    write_whole(path, report(run_of(folder)).encode())
    return path


def environment() -> dict[str, Any]:
    """The versions of this process and what its machine is."""
    import psutil

    from cluster import __version__
    from cluster.metrics.build import tensorflow_version
    from cluster.metrics.processor import processor

    return {
        "schema": 1,
        "pscluster": __version__,
        "tensorflow": tensorflow_version(),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "system": platform.platform(),
        "processor": processor(),
        "cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
