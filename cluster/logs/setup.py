"""A process begins to log."""

import logging
import sys
from types import TracebackType

from cluster.logs.lines import Speaker, formatter
from cluster.logs.settings import LogLevel, LogSettings

OURS = ("cluster", "deploy", "pscluster")
"""Loggers that may say more than the libraries, whose `debug` nobody here asked for."""

log = logging.getLogger("pscluster.end")


def begin(speaker: Speaker, settings: LogSettings) -> None:
    """Log to standard error from now on, in place of whatever was set up before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(settings.format, speaker))
    logging.basicConfig(handlers=[handler], force=True)
    set_level(settings.level)
    if settings.format == "json":
        log_everything()


def set_level(level: LogLevel) -> None:
    """The least that is logged; of libraries never less than `info`."""
    least = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(max(least, logging.INFO))
    for name in OURS:
        logging.getLogger(name).setLevel(least)


def log_everything() -> None:
    """What Python would print by itself, warnings and the traceback of the end, becomes a line like any other."""
    logging.captureWarnings(True)
    sys.excepthook = _unforeseen


def _unforeseen(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        log.error("interrupted")
    else:
        log.critical("%s: %s", kind.__name__, problem, exc_info=(kind, problem, trace))
