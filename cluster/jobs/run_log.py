"""The log of one run: `coordinator.log` in its folder holds what the terminal showed and what it did not."""

import contextlib
import logging
import sys
from pathlib import Path
from types import TracebackType
from typing import ClassVar, TextIO

from cluster.logs.lines import Bare, LogSettings, Speaker, formatter, last_line, log_everything, set_level
from cluster.logs.terminal import say

log = logging.getLogger(__name__)

SPEAKER = Speaker("coordinator:0")
"""This process; a process is the coordinator of one run at a time."""


class _Terminal(logging.StreamHandler[TextIO]):
    """Writes to whatever standard error is at the time: a live progress bar puts itself in its place."""

    @property
    def stream(self) -> TextIO:
        """Standard error as it is now."""
        return sys.stderr

    @stream.setter
    def stream(self, _stream: TextIO) -> None:
        pass


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


class _Patient(logging.FileHandler):
    """Drops a line that the disk refuses. The terminal shows nothing of it and the job continues."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        pass

    def close(self) -> None:
        """Close the file. What a full disk did not take is lost; the job ends as it does."""
        with contextlib.suppress(OSError):
            super().close()


class RunLog:
    """What is logged goes into the file until the end of the `with`, each line with the run's id: its folder's name.

    A full disk costs the log alone.
    """

    settings: ClassVar[LogSettings] = LogSettings()
    """Of this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _Patient(path, encoding="utf-8", delay=True)
        self._file.setFormatter(formatter(self.settings.format, SPEAKER))

    def __enter__(self) -> "RunLog":
        with contextlib.suppress(OSError):
            self.path.touch()  # `--resume` requires this file
        root = logging.getLogger()
        self._level_before = root.level
        set_level(self.settings.level)
        root.addHandler(self._file)
        SPEAKER.run = self.path.parent.name
        log.info("run %s begins", SPEAKER.run)
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        log.info("run %s is over", SPEAKER.run)
        root = logging.getLogger()
        root.removeHandler(self._file)
        root.setLevel(self._level_before)
        SPEAKER.run = ""
        self._file.close()

    def keep_traceback(self, problem: BaseException) -> None:
        """The problem with its traceback, in the file alone."""
        self._file.handle(
            logging.LogRecord(
                __name__, logging.CRITICAL, __file__, 0, "%s", (problem,),
                (type(problem), problem, problem.__traceback__),
            )
        )  # fmt: skip
