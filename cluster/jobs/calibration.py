"""The calibration that all runs of a cluster share: how fast the job `pi` found each worker."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.ground.files import atomic_write, read_json

log = logging.getLogger(__name__)


def _calibration(runs: Path, cluster: str) -> Path:
    return runs / f"calibration-{cluster}.json"


def keep_calibration(runs: Path, cluster: str, samples_per_second: dict[str, float]) -> None:
    """Store what the pi job measured, by task name. Raises ClusterError if it cannot be written."""
    content = {"schema": 1, "cluster": cluster, "samples_per_second": samples_per_second}
    atomic_write(_calibration(runs, cluster), json.dumps(content, indent=2).encode() + b"\n")


def latest_calibration(runs: Path, cluster: str) -> dict[str, float] | None:
    """Return samples per second by task name, as the last pi job measured them.

    None if none was kept or it is unreadable.
    """
    try:
        stored: Any = read_json(_calibration(runs, cluster))
        return {str(task): float(rate) for task, rate in stored["samples_per_second"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


class WorkerSpeeds:
    """How much each worker does in a second.

    Its first reply also sets its graph up: it says nothing about speed.
    """

    def __init__(self) -> None:
        self._done: dict[int, tuple[int, float]] = {}

    def add(self, task: int, count: int, seconds: float) -> None:
        """Count a reply of the worker `task`."""
        if task not in self._done:
            self._done[task] = (0, 0.0)
            return
        before, spent = self._done[task]
        self._done[task] = (before + count, spent + seconds)

    def by_name(self) -> dict[str, float]:
        """Return the speeds that are known, by the tasks' names."""
        return {
            f"worker:{task}": count / seconds
            for task, (count, seconds) in sorted(self._done.items())
            if seconds
        }


def speeds_of(samples_per_second: Mapping[str, float] | None) -> dict[int, float]:
    """Return the speeds by the worker's number; empty if there is none."""
    named = (samples_per_second or {}).items()
    return {
        int(task.removeprefix("worker:")): rate
        for task, rate in named
        if task.startswith("worker:") and rate > 0
    }
