"""The folder a job leaves, `runs/<UTC time>-<job>/`, how runs are found again, and how a job logs.

It logs to standard error and to `coordinator.log`, which holds what the terminal showed and what it
did not. `chaos.jsonl` has the faults that `--chaos` injected, over all coordinators of the run.
"""

import json
import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TextIO

from typing_extensions import override

from cluster.apps.copy import why_foreign
from core.ground.errors import ClusterError, UsageError
from core.ground.files import atomic_write, read_json
from core.logs import say
from core.logs.lines import (
    Bare,
    LogSettings,
    Speaker,
    formatter,
    last_line,
    log_everything,
    set_level,
)
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


SPEAKER = Speaker("coordinator:0")
"""This process; a process is the coordinator of one run at a time."""


class _Terminal(logging.StreamHandler[TextIO]):
    """Writes to whatever standard error is at the time.

    A live progress bar puts itself in its place.
    """

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)


class JobLogging:
    """How this process logs: to standard error, and to the run's folder while there is one."""

    def __init__(self, settings: LogSettings | None = None, *, for_programs: bool = False) -> None:
        """`for_programs`: standard error is JSON lines too, and nothing else."""
        self.settings = settings or LogSettings()
        self.for_programs = for_programs

    def to_terminal(self, *, quiet: bool) -> None:
        """Warnings, or errors alone, on standard error; as JSON, all that is logged.

        Call it once, first of all.
        """
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
    """A file that takes what is logged until the end of the `with`.

    Each line has the run's id, which is its folder's name.

    A full disk costs the log alone: it drops what the disk refuses, and the terminal shows nothing
    of it.
    """

    settings: ClassVar[LogSettings] = LogSettings()
    """The settings of this process."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", delay=True)
        self.path = path
        self.setFormatter(formatter(self.settings.format, SPEAKER))

    @override
    def emit(self, record: logging.LogRecord) -> None:
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
                __name__,
                logging.CRITICAL,
                __file__,
                0,
                "%s",
                (problem,),
                (type(problem), problem, problem.__traceback__),
            )
        )
