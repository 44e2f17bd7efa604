"""The folder a job leaves, `runs/<UTC time>-<job>/`, its logs, and the calibration that all runs of a cluster share.

`coordinator.log` holds what the terminal showed and what it did not; `chaos.jsonl` the faults that `--chaos` injected,
over all coordinators of the run.
"""

import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TextIO

from cluster.atomic_write import atomic_write
from cluster.engine.chaos import DEADLY, Chaos, ChaosPlan, Fault, Strike, deadly_faults
from cluster.engine.saboteur import Saboteur
from cluster.errors import ClusterError, UsageError
from cluster.logs.lines import Bare, LogSettings, Speaker, formatter, last_line, log_everything, set_level
from cluster.logs.terminal import say
from cluster.status.events import Consumer, FaultInjected
from cluster.status.history import finite

log = logging.getLogger(__name__)

SPEAKER = Speaker("coordinator:0")
"""This process; a process is the coordinator of one run at a time."""
SEQUENCE = "sequence"
"""A file of each run: 1 for the first of its folder of runs, and so on."""
CHAOS_LOG = "chaos.jsonl"
SUPERVISOR = "PSCLUSTER_SUPERVISOR"
"""Environment variable: the socket of the supervisor that keeps the roles."""
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


def newest_unfinished(runs: Path, job: str = "train") -> Path:
    """The folder of the newest run of a job without its full result. Raises UsageError if there is none."""
    found = [path.parent for path in runs.glob(f"*-{job}*/coordinator.log") if not is_finished(path.parent)]
    if not found:
        what = "training run" if job == "train" else f"run of {job}"
        raise UsageError(f"{runs}: expected an interrupted {what}, found none: start one without --resume")
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


class _Terminal(logging.StreamHandler[TextIO]):
    """Writes to whatever standard error is at the time: a live progress bar puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)


class JobLogging:
    """How this process logs: to standard error from the beginning, and to the run's folder while there is one."""

    def __init__(self, settings: LogSettings = LogSettings(), *, for_programs: bool = False) -> None:  # noqa: B008 frozen
        """`for_programs`: standard error is JSON lines too, and nothing else."""
        self.settings, self.for_programs = settings, for_programs

    def to_terminal(self, *, quiet: bool) -> None:
        """Warnings, or errors alone, on standard error; as JSON, all that is logged. Call it once, first of all."""
        terminal = _Terminal()
        if self.for_programs:
            terminal.setLevel(logging.ERROR if quiet else logging.NOTSET)
            log_everything()
        else:
            # A person sees what is said to them (`Display.say`), which is logged too.
            terminal.setLevel(logging.ERROR if quiet else logging.WARNING)
        if self.for_programs or not sys.stderr.isatty():
            terminal.setFormatter(formatter("json" if self.for_programs else "text", SPEAKER))
        else:
            # A person reads it between progress lines; the log file has the time and the rest.
            terminal.setFormatter(Bare())
        logging.basicConfig(handlers=[terminal], force=True)
        set_level(self.settings.level)
        RunLog.settings = self.settings

    def end_with(self, problem: Exception) -> None:
        """The one line in which the job says why it failed."""
        say(last_line("json", SPEAKER, str(problem)) if self.for_programs else problem, error=True)


class RunLog(logging.FileHandler):
    """What is logged goes into the file until the end of the `with`, each line with the run's id: its folder's name.

    A full disk costs the log alone: it drops what the disk refuses, and the terminal shows nothing of it.
    """

    settings: ClassVar[LogSettings] = LogSettings()
    """Of this process."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", delay=True)
        self.path = path
        self.setFormatter(formatter(self.settings.format, SPEAKER))

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler. The disk may refuse even to open the file."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Say nothing."""

    def close(self) -> None:
        """Close the file. What a full disk did not take is lost; the job ends as it does."""
        with suppress(OSError):
            super().close()

    def __enter__(self) -> "RunLog":
        with suppress(OSError):
            self.path.touch()  # `--resume` requires this file
        root = logging.getLogger()
        self._level_before = root.level
        set_level(self.settings.level)
        root.addHandler(self)
        SPEAKER.run = self.path.parent.name
        log.info("run %s begins", SPEAKER.run)
        return self

    def __exit__(self, *_: object) -> None:
        log.info("run %s is over", SPEAKER.run)
        root = logging.getLogger()
        root.removeHandler(self)
        root.setLevel(self._level_before)
        SPEAKER.run = ""
        self.close()

    def keep_traceback(self, problem: BaseException) -> None:
        """The problem with its traceback, in the file alone."""
        self.handle(
            logging.LogRecord(
                __name__, logging.CRITICAL, __file__, 0, "%s", (problem,),
                (type(problem), problem, problem.__traceback__),
            )
        )  # fmt: skip


def sabotage(
    plan: ChaosPlan | None, folder: Path, servers: int, emit: Consumer, *, workers_hold_parameters: bool = False
) -> tuple[Saboteur | None, "ChaosLog | None"]:
    """The saboteur of a plan for a run on `servers` parameter servers, and its log; Nones without a plan.

    Every fault is emitted. Raises ClusterError.
    """
    if plan is None:
        return None, None
    deadly = deadly_faults(workers_hold_parameters)
    record = ChaosLog(folder, emit, deadly)
    supervisor = os.environ.get(SUPERVISOR)
    chaos = Chaos(plan, record.attempt, servers, deadly)
    return Saboteur(chaos, record, Path(supervisor) if supervisor else None), record


class ChaosLog:
    """`chaos.jsonl` of one run, opened by its next coordinator.

    A line a fault and one for each coordinator's beginning, written before anything else happens: it survives a SIGKILL
    of this process, which is one of the faults.
    """

    def __init__(
        self, folder: Path, emit: Consumer = lambda _: None, deadly: frozenset[Fault] = DEADLY
    ) -> None:  # fmt: skip
        """Raises ClusterError if it cannot be read or written."""
        self._path, self._emit, self._deadly_faults = folder / CHAOS_LOG, emit, deadly
        try:
            lines = self._path.read_bytes().splitlines() if self._path.exists() else []
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as problem:
            raise ClusterError(
                f"{self._path}: cannot be read and appended to ({problem.strerror}): is there room, and may you write "
                "there?"
            ) from None
        known = [entry for line in lines if (entry := _entry(line)) is not None]
        self.attempt = sum("attempt" in entry for entry in known)
        """Number of coordinators that wrote to it before."""
        self._injected = Counter(str(entry["fault"]) for entry in known if "fault" in entry)
        self._deadly = [float(entry["time"]) for entry in known if entry.get("fault") in deadly]
        self._write(attempt=self.attempt)

    def injected(self, strike: Strike) -> None:
        """See saboteur.Record."""
        self._injected[strike.fault.value] += 1
        if strike.fault in self._deadly_faults:
            self._deadly.append(time.time())
        self._write(fault=strike.fault.value, target=strike.target, dispatch=strike.dispatch)
        self._emit(FaultInjected(strike.fault.value, strike.target))

    def deadly(self, seconds: float) -> int:
        """See saboteur.Record."""
        now = time.time()
        return sum(now - at < seconds for at in self._deadly)

    def describe(self) -> dict[str, Any]:
        """The `chaos` entry of a result."""
        return {"injected": dict(sorted(self._injected.items()))}

    def _write(self, **facts: Any) -> None:
        # One write a line: threads and a death in between leave whole lines.
        os.write(self._file, json.dumps({"time": time.time(), **facts}).encode() + b"\n")


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "time" in found else None
