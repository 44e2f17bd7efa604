"""How logs are written: for people or for programs, and how much."""

import argparse
from dataclasses import dataclass
from typing import Literal, get_args

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True)
class LogSettings:
    """The keys of `logging:` in an inventory, and the flags of the same names."""

    format: LogFormat = "text"
    level: LogLevel = "info"


def add_flags(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """`--log-format` and `--log-level`; `otherwise` says what holds without them. Both are None when not given."""
    parser.add_argument("--log-format", choices=get_args(LogFormat), help=f"of the log; {otherwise}")
    parser.add_argument("--log-level", choices=get_args(LogLevel), help=f"the least that is logged; {otherwise}")


def given_or(log_format: LogFormat | None, log_level: LogLevel | None, settings: LogSettings) -> LogSettings:
    """What the flags say, and `settings` where they say nothing."""
    return LogSettings(log_format or settings.format, log_level or settings.level)
