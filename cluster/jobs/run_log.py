"""The log of one run: `coordinator.log` in its folder holds what the terminal showed and what it did not."""

import contextlib
import logging
import sys
from pathlib import Path
from types import TracebackType
from typing import TextIO

LINE = "%(asctime)s coordinator %(levelname)s %(message)s"


class _Terminal(logging.StreamHandler[TextIO]):
    """Writes to whatever standard error is at the time: a live progress bar puts itself in its place."""

    @property
    def stream(self) -> TextIO:
        """Standard error as it is now."""
        return sys.stderr

    @stream.setter
    def stream(self, _stream: TextIO) -> None:
        pass


def log_to_terminal(*, quiet: bool) -> None:
    """Warnings, or errors alone, on standard error. Call it once, first of all."""
    terminal = _Terminal()
    terminal.setLevel(logging.ERROR if quiet else logging.WARNING)
    if sys.stderr.isatty():
        # A person reads it between progress lines; the log file has the time and the rest.
        terminal.setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, format=LINE, handlers=[terminal])


class _Patient(logging.FileHandler):
    """Loses a line that the disk does not take, instead of telling the terminal or ending the job."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        pass


class RunLog:
    """Everything from INFO on goes into the file until the end of the `with`. A full disk costs the log alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _Patient(path, encoding="utf-8", delay=True)
        self._file.setFormatter(logging.Formatter(LINE))
        self._file.setLevel(logging.INFO)

    def __enter__(self) -> "RunLog":
        with contextlib.suppress(OSError):
            self.path.touch()  # a run without it is none that can be gone on with
        root = logging.getLogger()
        self._level_before = root.level
        root.setLevel(min(root.level, logging.INFO))
        root.addHandler(self._file)
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        root = logging.getLogger()
        root.removeHandler(self._file)
        root.setLevel(self._level_before)
        self._file.close()

    def keep_traceback(self, problem: BaseException) -> None:
        """The problem with its traceback, in the file alone."""
        self._file.handle(
            logging.LogRecord(
                __name__, logging.CRITICAL, __file__, 0, "%s", (problem,),
                (type(problem), problem, problem.__traceback__),
            )
        )  # fmt: skip
