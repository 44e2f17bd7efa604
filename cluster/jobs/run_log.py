"""How a job logs: to standard error, and to the folder of its run."""

import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, TextIO

from typing_extensions import override

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

log = logging.getLogger(__name__)


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
