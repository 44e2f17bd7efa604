"""The folder a job leaves, `runs/<UTC time>-<job>/`, and the calibration that all runs of a cluster share."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cluster.atomic_write import atomic_write
from cluster.errors import ClusterError, UsageError
from cluster.status.history import finite

SEQUENCE = "sequence"
"""A file of each run: 1 for the first of its folder of runs, and so on."""
_LONGEST_NUMBER = 18


class RunFolder:
    """The folder of one run: a new one, or that of a resumed run."""

    def __init__(self, runs: Path, job: str, resumed: Path | None = None) -> None:
        """Make `runs/<UTC time>-<job>/`, or take `resumed`. Raises ClusterError if that is not possible."""
        self.job = job
        if resumed is not None:
            self.path = resumed
            return
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        for attempt in range(1000):
            self.path = runs / (f"{stamp}-{job}" if attempt == 0 else f"{stamp}-{job}-{attempt}")
            try:
                self.path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as problem:
                raise ClusterError(
                    f"{self.path}: cannot be made ({problem.strerror}): is there room, and may you write there? "
                    "`runs` of the inventory names another folder"
                ) from None
            self._take_number(runs)
            return
        raise ClusterError(f"{runs}: a thousand runs of {job} began in the same second: wait a moment")

    def _take_number(self, runs: Path) -> None:
        """Write the place in the order of starts: names are out of order once a clock is set back."""
        number = 1 + max((_number(path.parent) for path in runs.glob(f"*/{SEQUENCE}")), default=0)
        with suppress(OSError):  # a disk that refuses it refuses the checkpoint too, which is an error
            (self.path / SEQUENCE).write_text(f"{number}\n", encoding="ascii")

    @property
    def result_path(self) -> Path:
        """Where the result goes."""
        return self.path / "result.json"

    def write_result(self, result: dict[str, Any]) -> Path:
        """Write `result.json`; returns its path. Numbers that JSON has no word for become null."""
        text = json.dumps(finite(result), indent=2, allow_nan=False)
        atomic_write(self.result_path, text.encode() + b"\n")
        return self.result_path


def newest_unfinished(runs: Path) -> Path:
    """The folder of the newest training run without its full result. Raises UsageError if there is none."""
    found = [path.parent for path in runs.glob("*-train*/coordinator.log") if not is_finished(path.parent)]
    if not found:
        raise UsageError(f"{runs}: expected an interrupted training run, found none: start one without --resume")
    return max(found, key=_age)


def is_finished(run: Path) -> bool:
    """Whether the run has its full result."""
    try:
        return bool(json.loads((run / "result.json").read_bytes())["status"] == "done")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def unfinished(run: Path) -> Path:
    """The run, if it is resumable. Raises UsageError if it is no run, or finished."""
    if not (run / "coordinator.log").exists():
        raise UsageError(
            f"{run}: expected the folder of a training run, found no coordinator.log in it: `--resume` alone "
            "takes the newest one"
        )
    if is_finished(run):
        raise UsageError(f"{run}: is finished: there is nothing to resume; `fab job evaluate --run` evaluates it")
    return run


def newest_model(runs: Path) -> Path:
    """The folder of the newest training run that left a model. Raises UsageError if there is none."""
    found = [path.parent.parent for path in runs.glob("*-train*/model/model.json")]
    if not found:
        raise UsageError(f"{runs}: expected a training run with a model, found none: run `fab job train` first")
    return max(found, key=_age)


def _age(run: Path) -> tuple[int, str, int]:
    """What orders runs by their start: the number they took, then (runs of earlier versions) their names."""
    stamp, _, rest = run.name.partition("-")
    number = rest.rpartition("-")[2]
    return _number(run), stamp, int(number) if number.isdecimal() else 0


def _number(run: Path) -> int:
    """The place of the run in the order of starts; 0 where it has none that can be read."""
    try:
        with (run / SEQUENCE).open("rb") as file:
            written = file.read(_LONGEST_NUMBER).strip()
        return int(written) if written.isdigit() else 0
    except OSError:
        return 0


def _calibration(runs: Path, cluster: str) -> Path:
    return runs / f"calibration-{cluster}.json"


def keep_calibration(runs: Path, cluster: str, samples_per_second: dict[str, float]) -> None:
    """Store what the pi job measured, by task name. Raises ClusterError if it cannot be written."""
    content = {"schema": 1, "cluster": cluster, "samples_per_second": samples_per_second}
    atomic_write(_calibration(runs, cluster), json.dumps(content, indent=2).encode() + b"\n")


def latest_calibration(runs: Path, cluster: str) -> dict[str, float] | None:
    """Samples per second by task name, as the last pi job measured them; None if none was kept or it is unreadable."""
    try:
        stored: Any = json.loads(_calibration(runs, cluster).read_bytes())
        return {str(task): float(rate) for task, rate in stored["samples_per_second"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def speeds_of(samples_per_second: Mapping[str, float] | None) -> dict[int, float]:
    """The same by the worker's number; empty if there is none."""
    named = (samples_per_second or {}).items()
    return {int(task.removeprefix("worker:")): rate for task, rate in named if task.startswith("worker:") and rate > 0}
