"""The folder a job leaves, `runs/<UTC time>-<job>/`, and how runs are found again.

`coordinator.log` holds what the terminal showed and what it did not; `chaos.jsonl` the faults that
`--chaos` injected, over all coordinators of the run.
"""

import json
import logging
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cluster.apps.copy import why_foreign
from core.ground.errors import ClusterError, UsageError
from core.ground.files import atomic_write, read_json
from core.logs import say
from core.status.history import finite

log = logging.getLogger(__name__)

SEQUENCE = "sequence"
"""A file of each run: 1 for the first of its folder of runs, and so on."""
_LONGEST_NUMBER = 18


class RunFolder:
    """The folder of one run: a new one, or that of a resumed run."""

    def __init__(self, runs: Path, job: str, resumed: Path | None = None) -> None:
        """Make `runs/<UTC time>-<job>/`, or take `resumed`.

        Raises ClusterError if that is not possible.
        """
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
                    f"{self.path}: cannot be made ({problem.strerror}): is there room, and may you"
                    " write there? `runs` of the inventory names another folder"
                ) from None
            self._take_number(runs)
            return
        raise ClusterError(
            f"{runs}: a thousand runs of {job} began in the same second: wait a moment"
        )

    def _take_number(self, runs: Path) -> None:
        """Write the place in the order of starts: a clock that is set back reorders names."""
        number = 1 + max((_number(path.parent) for path in runs.glob(f"*/{SEQUENCE}")), default=0)
        with suppress(
            OSError
        ):  # a disk that refuses it refuses the checkpoint too, which is an error
            (self.path / SEQUENCE).write_text(f"{number}\n", encoding="ascii")

    @property
    def result_path(self) -> Path:
        """Path of the result."""
        return self.path / "result.json"

    def write_result(self, result: dict[str, Any]) -> Path:
        """Write `result.json`; returns its path. Numbers that JSON has no word for become null."""
        text = json.dumps(finite(result), indent=2, allow_nan=False)
        atomic_write(self.result_path, text.encode() + b"\n")
        return self.result_path


def newest_unfinished(runs: Path, job: str = "train") -> Path:
    """The folder of the newest run of a job without its full result.

    Raises UsageError if there is none.
    """
    unfinished_runs = [
        path.parent
        for path in runs.glob(f"*-{job}*/coordinator.log")
        if not is_finished(path.parent)
    ]
    if not unfinished_runs:
        if job == "train":
            what = "training run"
        else:
            what = f"run of {job}"
        raise UsageError(
            f"{runs}: expected an interrupted {what}, found none: start one without --resume"
        )
    return _newest(unfinished_runs)


def is_finished(run: Path) -> bool:
    """Whether the run has its full result."""
    try:
        return bool(read_json(run / "result.json")["status"] == "done")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def unfinished(run: Path) -> Path:
    """The run, if it is resumable. Raises UsageError if it is no run, or finished."""
    if not (run / "coordinator.log").exists():
        raise UsageError(
            f"{run}: expected the folder of a training run, found no coordinator.log in it:"
            " `--resume` alone takes the newest one"
        )
    if is_finished(run):
        raise UsageError(
            f"{run}: is finished: there is nothing to resume; `fab job evaluate --run` evaluates it"
        )
    return run


def model_run(named: str | None, runs: Path) -> Path:
    """Return the folder of the run whose model is used: `named`, or the newest training.

    `named` is a folder, or a name below `runs`. Raises UsageError if there is none.
    """
    if not named:
        return newest_model(runs)
    below = runs / named
    if not Path(named).is_dir() and below.is_dir():
        return below
    return Path(named)


def newest_model(runs: Path) -> Path:
    """The folder of the newest training run that left a model.

    Raises UsageError if there is none.
    """
    model_runs = [path.parent.parent for path in runs.glob("*-train*/model/model.json")]
    if not model_runs:
        raise UsageError(
            f"{runs}: expected a training run with a model, found none: run `fab job train` first"
        )
    return _newest(model_runs)


def _newest(runs: list[Path]) -> Path:
    """The newest one of our own; each newer one is passed over with a line.

    Raises UsageError if there is none.
    """
    runs = sorted(runs, key=_age, reverse=True)
    for run in runs:
        why = why_foreign(run)
        if why is None:
            return run
        say(f"{run}: {why}: it is passed over, --run takes it", error=True)
    raise UsageError(
        f"{runs[0]}: is the newest run, but it {why_foreign(runs[0])}: name the run with --run"
    )


def _age(run: Path) -> tuple[int, str, int]:
    """Return what orders runs by their start: the number they took, then their names.

    Runs of earlier versions have no number.
    """
    stamp, _, rest = run.name.partition("-")
    number = rest.rpartition("-")[2]
    return _number(run), stamp, int(number) if number.isdecimal() else 0


def _number(run: Path) -> int:
    """The place of the run in the order of starts; 0 where it has none that can be read."""
    try:
        with (run / SEQUENCE).open("rb") as file:
            written = file.read(_LONGEST_NUMBER).strip()
        if written.isdigit():
            return int(written)
        return 0
    except OSError:
        return 0
