"""Log lines of every process, written and read back: text for people or JSON for programs.

Each is `logging.Formatter` of the standard library and a few lines over it. python-json-logger has
the JSON half alone, and an argument that cannot be formatted, or a lone surrogate, breaks its
lines. structlog adds a second way to log beside that of all libraries here, and takes memory on a
1 GB Pi. Neither has the text half, or reads lines back.

docs/logs.md is the contract.
"""

import argparse
import json
import logging
import re
import sys
import time
from calendar import timegm
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, get_args

from core.ground.files import parsed_json
from core.logs import visible

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True)
class LogSettings:
    """The keys of `logging:` in an inventory, and the flags of the same names."""

    format: LogFormat = "text"
    level: LogLevel = "info"


def add_flags(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """`--log-format` and `--log-level`; `otherwise` describes the default. Both default to None."""
    parser.add_argument(
        "--log-format", choices=get_args(LogFormat), help=f"of the log; {otherwise}"
    )
    parser.add_argument(
        "--log-level", choices=get_args(LogLevel), help=f"the lowest level in the log; {otherwise}"
    )


def given_or(
    log_format: LogFormat | None, log_level: LogLevel | None, settings: LogSettings
) -> LogSettings:
    """The flags, with `settings` for those that are None."""
    return LogSettings(log_format or settings.format, log_level or settings.level)


LONGEST_LINE_CHARACTERS = 40_000
"""systemd's journal cuts a line at 48 KiB (LineMax=), which would break a JSON object."""
_LONGEST_TEXT_CHARACTERS = 16_000

CONTINUED = "    "
"""Prefix of the further lines of a message in text, so that no message can imitate a log line."""


@dataclass
class Speaker:
    """The process that logs: `worker:3` at `192.168.1.19:2223`, and its present run."""

    role: str
    address: str = ""
    run: str = ""


def formatter(log_format: LogFormat, speaker: Speaker) -> logging.Formatter:
    """The formatter of this format; it follows later changes of `speaker.run`."""
    if log_format == "json":
        return JsonLines(speaker)
    return TextLines(speaker)


def last_line(log_format: LogFormat, speaker: Speaker, message: str) -> str:
    """Return the line with the reason of a process's end.

    In text it has no time and level, like the error of a command.
    """
    if log_format == "json":
        record = logging.LogRecord("pscluster.end", logging.ERROR, "", 0, "%s", (message,), None)
        return JsonLines(speaker).format(record)
    return f"{' '.join(filter(None, (speaker.role, speaker.address)))}: {message}"


class Bare(logging.Formatter):
    """The message alone, for a person at a terminal with progress lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record without the traceback, which is in the log file."""
        return visible(_message(record))


class _Lines(logging.Formatter):
    def __init__(self, speaker: Speaker) -> None:
        super().__init__()
        self._speaker = speaker


class TextLines(_Lines):
    """Return a line for people.

    `2026-11-21T22:45:01.123Z INFO worker:3 192.168.1.19:2223 run 20261121T224500Z-train:
    message`
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as text."""
        speaker = self._speaker
        if speaker.run:
            run = f"run {speaker.run}"
        else:
            run = ""
        head = " ".join(
            filter(
                None, (utc(record.created), record.levelname, speaker.role, speaker.address, run)
            )
        )
        texts = [_message(record), _exception(self, record)]
        first, *more = "\n".join(filter(None, texts)).splitlines() or [""]
        return "\n".join(
            (f"{head}: {visible(first)}", *(f"{CONTINUED}{visible(line)}" for line in more))
        )


class JsonLines(_Lines):
    """One JSON object a line, in ASCII, for any message."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as JSON."""
        speaker = self._speaker
        message = _message(record)
        exception = _exception(self, record)
        longest = _LONGEST_TEXT_CHARACTERS
        while True:
            entry = LogLine(
                record.created,
                _cut(message, longest),
                record.levelname.lower(),
                speaker.role,
                speaker.address,
                speaker.run,
                record.name,
                _cut(exception, longest),
            )
            line = json.dumps(entry.to_json())
            if len(line) <= LONGEST_LINE_CHARACTERS or not longest:
                return line
            longest //= 2


def whole_milliseconds(seconds: float) -> int:
    """Return milliseconds since the epoch, rounded down.

    Float error is corrected first: .12299990 is .123.
    """
    return round(seconds * 1_000_000) // 1000


def utc(seconds: float) -> str:
    """RFC 3339 with milliseconds: `2026-11-21T22:45:01.123Z`."""
    milliseconds = whole_milliseconds(seconds)
    return (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
        + f".{milliseconds % 1000:03d}Z"
    )


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as problem:  # a bad message must not end the process
        return (
            f"a message that cannot be formatted ({type(problem).__name__}): {_text_of(record.msg)}"
        )


def _exception(log_formatter: logging.Formatter, record: logging.LogRecord) -> str:
    try:
        if record.exc_info:
            return log_formatter.formatException(record.exc_info)
        return ""
    except Exception as problem:
        return f"a traceback that cannot be shown: {type(problem).__name__}"


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        cut = text
    else:
        cut = f"{text[:longest]}... ({len(text) - longest} more characters)"
    # Strict readers refuse a line with a lone surrogate.
    return cut.encode("utf-8", "backslashreplace").decode()


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return f"a {type(value).__name__}"


OURS = ("cluster", "deploy", "pscluster")
"""Loggers that follow `debug`; other libraries stay at `info`."""

log = logging.getLogger("pscluster.end")


def begin(speaker: Speaker, settings: LogSettings) -> None:
    """Log to standard error from now on; replaces any earlier setup."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(settings.format, speaker))
    logging.basicConfig(handlers=[handler], force=True)
    set_level(settings.level)
    if settings.format == "json":
        log_everything()


def set_level(level: LogLevel) -> None:
    """Set the lowest logged level; for libraries it is never below `info`."""
    least = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(max(least, logging.INFO))
    for name in OURS:
        logging.getLogger(name).setLevel(least)


def log_everything() -> None:
    """Turn what Python itself prints, warnings and the final traceback, into log lines."""
    logging.captureWarnings(True)
    sys.excepthook = _unforeseen


def _unforeseen(
    kind: type[BaseException], problem: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        log.error("interrupted")
    else:
        log.critical("%s: %s", kind.__name__, problem, exc_info=(kind, problem, trace))


_TEXT = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?P<level>[A-Z]+) (?P<role>[a-z]+(?::\d+)?)"
    r"(?: (?P<address>\S+:\d+))?(?: run (?P<run>[\w.-]+))?: (?P<message>.*)",
    re.DOTALL,
)
_FOREIGN = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[.,](?P<fraction>\d{1,9})[: ] ?(?P<message>.*)",
    re.DOTALL,
)
"""TensorFlow's lines and logs of earlier versions; they have local time."""


_FIELDS = ("level", "role", "address", "run", "logger")


@dataclass(frozen=True)
class LogLine:
    """The fields of a line; a missing one is empty. `seconds` are since the epoch."""

    seconds: float
    message: str
    level: str = ""
    role: str = ""
    address: str = ""
    run: str = ""
    logger: str = ""
    exception: str = ""

    @property
    def shown(self) -> str:
        """Return the message for a person, beside time and role.

        It stands after its level unless that is `info`.
        """
        if self.level not in ("", "info"):
            level = f"{self.level.upper()} "
        else:
            level = ""
        return level + "\n".join(filter(None, (self.message, self.exception)))

    def to_json(self) -> dict[str, Any]:
        """The fields of docs/logs.md."""
        attributes = {name: getattr(self, name) or None for name in _FIELDS}
        fields = {"time": utc(self.seconds), **attributes, "message": self.message}
        if self.exception:
            return {**fields, "exception": self.exception}
        return fields


def read_line(text: str) -> LogLine | None:
    """The line; None for the further lines of a message and for a line without a time."""
    if text.startswith("{"):
        return _from_json(text)
    try:
        if match := _TEXT.match(text):
            groups = {name: value or "" for name, value in match.groupdict().items()}
            return LogLine(
                epoch(groups.pop("time")), **{**groups, "level": groups["level"].lower()}
            )
        if match := _FOREIGN.match(text):
            whole = time.mktime(time.strptime(match["time"], "%Y-%m-%d %H:%M:%S"))
            return LogLine(whole + float(f"0.{match['fraction']}"), match["message"])
    except (ValueError, OverflowError):  # the thirteenth month
        pass
    return None


def epoch(rfc_3339: str) -> float:
    """Seconds since the epoch of `2026-11-21T22:45:01.123Z`.

    Raises ValueError for anything else.
    """
    whole, _, fraction = rfc_3339.removesuffix("Z").partition(".")
    if not rfc_3339.endswith("Z") or not fraction.isdecimal():
        raise ValueError(rfc_3339)
    return timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction}")


def _from_json(text: str) -> LogLine | None:
    try:
        entry = parsed_json(text)
        fields = {name: str(entry.get(name) or "") for name in (*_FIELDS, "exception")}
        return LogLine(epoch(str(entry["time"])), str(entry["message"]), **fields)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def duration(seconds: float | None) -> str:
    """`42 s`, `3 min 05 s`, `2 h 07 min`, `3 d 04 h`; `-` for None."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    for size, name, smaller, smaller_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // smaller:02d} {smaller_name}"
    return f"{whole} s"
