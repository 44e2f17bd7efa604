"""The cluster's calibration: samples per second of each worker in the pi job, kept with the runs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.atomic_write import atomic_write


def _path(runs: Path, cluster: str) -> Path:
    return runs / f"calibration-{cluster}.json"


def keep(runs: Path, cluster: str, samples_per_second: dict[str, float]) -> None:
    """Store what the pi job measured, by task name. Raises ClusterError if it cannot be written."""
    content = {"schema": 1, "cluster": cluster, "samples_per_second": samples_per_second}
    atomic_write(_path(runs, cluster), json.dumps(content, indent=2).encode() + b"\n")


def latest(runs: Path, cluster: str) -> dict[str, float] | None:
    """Samples per second by task name, as the last pi job measured them; None if none was kept or it is unreadable."""
    try:
        stored: Any = json.loads(_path(runs, cluster).read_bytes())
        return {str(task): float(rate) for task, rate in stored["samples_per_second"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def tasks_of(samples_per_second: Mapping[str, float] | None) -> dict[int, float]:
    """The same by the worker's number; empty if there is none."""
    named = (samples_per_second or {}).items()
    return {int(task.removeprefix("worker:")): rate for task, rate in named if task.startswith("worker:") and rate > 0}
