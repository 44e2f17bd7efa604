"""The folder a job leaves behind: `runs/<UTC time>-<job>/`, every file of it whole or not there."""

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cluster.atomic_write import atomic_write
from cluster.errors import ClusterError, UsageError

SEQUENCE = "sequence"
"""A file of each run: 1 for the first of its folder of runs, and so on."""
_LONGEST_NUMBER = 18


class RunFolder:
    """One run's folder, made when the job starts, or that of a run that goes on."""

    def __init__(self, runs: Path, job: str, resumed: Path | None = None) -> None:
        """Make `runs/<UTC time>-<job>/`, or take `resumed`. Raises ClusterError if that is not possible."""
        self.job, self.event_lines = job, 0
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
        """Note the place in the order of starts, which the name only has while nobody sets the clock back."""
        number = 1 + max((_number(path.parent) for path in runs.glob(f"*/{SEQUENCE}")), default=0)
        with suppress(OSError):  # a disk that does not take it takes no checkpoint either, and says so then
            (self.path / SEQUENCE).write_text(f"{number}\n", encoding="ascii")

    @property
    def result_path(self) -> Path:
        """Where the result goes."""
        return self.path / "result.json"

    def event(self, **facts: Any) -> None:
        """Append one line to `events.jsonl`."""
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **_finite(facts)})
        try:
            with (self.path / "events.jsonl").open("a") as stream:
                stream.write(line + "\n")
            self.event_lines += 1
        except OSError as problem:
            raise ClusterError(
                f"{self.path / 'events.jsonl'}: cannot be written ({problem.strerror}): is there room, and "
                "may you write there?"
            ) from None

    def keep_events(self, lines: int) -> None:
        """Keep the first so many lines of `events.jsonl`: what came after the checkpoint happens again."""
        path = self.path / "events.jsonl"
        if path.exists():
            kept = path.read_bytes().splitlines(keepends=True)[:lines]
            atomic_write(path, b"".join(kept))
        self.event_lines = lines

    def write_result(self, result: dict[str, Any]) -> Path:
        """Write `result.json`; returns its path. Numbers that JSON has no word for become null."""
        text = json.dumps(_finite(result), indent=2, allow_nan=False)
        atomic_write(self.result_path, text.encode() + b"\n")
        return self.result_path


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
        case float() if value != value or value in (float("inf"), float("-inf")):
            return None
        case _:
            return value


def newest_unfinished(runs: Path) -> Path:
    """The folder of the newest training run without its full result. Raises UsageError if there is none."""
    found = [path.parent for path in runs.glob("*-train*/coordinator.log") if not is_finished(path.parent)]
    if not found:
        raise UsageError(f"{runs}: expected a training run that was broken off, found none: start one without --resume")
    return max(found, key=_age)


def is_finished(run: Path) -> bool:
    """Whether the run has its full result."""
    try:
        return bool(json.loads((run / "result.json").read_bytes())["status"] == "done")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def unfinished(run: Path) -> Path:
    """The run, if it can go on. Raises UsageError if it is none, or finished."""
    if not (run / "coordinator.log").exists():
        raise UsageError(
            f"{run}: expected the folder of a training run, found no coordinator.log in it: `--resume` alone "
            "takes the newest one"
        )
    if is_finished(run):
        raise UsageError(f"{run}: is finished: there is nothing to go on with; `fab job evaluate --run` looks at it")
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
