"""A record of `logging` as a line: text for people, JSON for programs. docs/logs.md is the contract."""

import json
import logging
import time
from dataclasses import dataclass

from cluster.logs.foreign import visible
from cluster.logs.settings import LogFormat

LONGEST_LINE_CHARACTERS = 40_000
"""systemd's journal cuts a line at 48 KiB (LineMax=), and half a JSON object is none."""
_LONGEST_TEXT_CHARACTERS = 16_000

CONTINUED = "    "
"""Begins the further lines of a message in text: nothing that is logged can look like a line of its own."""


@dataclass
class Speaker:
    """Who logs: `worker:3` at `192.168.1.19:2223`, and the run it works on while there is one."""

    role: str
    address: str = ""
    run: str = ""


def formatter(log_format: LogFormat, speaker: Speaker) -> logging.Formatter:
    """What makes lines of records. A change of `speaker.run` shows in the lines from then on."""
    return JsonLines(speaker) if log_format == "json" else TextLines(speaker)


def last_line(log_format: LogFormat, speaker: Speaker, message: str) -> str:
    """The line in which a process says why it ends; in text without time and level, as any command's error is."""
    if log_format == "json":
        record = logging.LogRecord("pscluster.end", logging.ERROR, "", 0, "%s", (message,), None)
        return JsonLines(speaker).format(record)
    return f"{' '.join(filter(None, (speaker.role, speaker.address)))}: {message}"


class Bare(logging.Formatter):
    """The message alone, for a person who sees it between lines of progress."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`; without a traceback, which the log file has."""
        return visible(_message(record))


class TextLines(logging.Formatter):
    """`2026-11-21T22:45:01.123Z INFO worker:3 192.168.1.19:2223 run 20261121T224500Z-train: message`."""

    def __init__(self, speaker: Speaker) -> None:
        super().__init__()
        self._speaker = speaker

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        who = self._speaker
        run = f"run {who.run}" if who.run else ""
        head = " ".join(filter(None, (utc(record.created), record.levelname, who.role, who.address, run)))
        parts = [_message(record), _exception(self, record)]
        first, *more = "\n".join(filter(None, parts)).splitlines() or [""]
        return "\n".join((f"{head}: {visible(first)}", *(f"{CONTINUED}{visible(line)}" for line in more)))


class JsonLines(logging.Formatter):
    """One JSON object a line, in ASCII, whatever the message is made of."""

    def __init__(self, speaker: Speaker) -> None:
        super().__init__()
        self._speaker = speaker

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        who, message, exception = self._speaker, _message(record), _exception(self, record)
        longest = _LONGEST_TEXT_CHARACTERS
        while True:
            fields = {
                "time": utc(record.created),
                "level": record.levelname.lower(),
                "role": who.role,
                "address": who.address or None,
                "run": who.run or None,
                "logger": record.name,
                "message": _whole(_cut(message, longest)),
            }
            if exception:
                fields["exception"] = _whole(_cut(exception, longest))
            line = json.dumps(fields)
            if len(line) <= LONGEST_LINE_CHARACTERS or not longest:
                return line
            longest //= 2


def whole_milliseconds(seconds: float) -> int:
    """The full milliseconds since the epoch. As a float .123 of these days is .12299990: that is .123 here."""
    return round(seconds * 1_000_000) // 1000


def utc(seconds: float) -> str:
    """RFC 3339 with milliseconds: `2026-11-21T22:45:01.123Z`."""
    milliseconds = whole_milliseconds(seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000)) + f".{milliseconds % 1000:03d}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as problem:  # a line less is no reason to lose the others, or the process
        return f"a message that cannot be formatted ({type(problem).__name__}): {_shown(record.msg)}"


def _exception(made: logging.Formatter, record: logging.LogRecord) -> str:
    try:
        return made.formatException(record.exc_info) if record.exc_info else ""
    except Exception as problem:
        return f"a traceback that cannot be shown: {type(problem).__name__}"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text) - longest} more characters)"


def _whole(text: str) -> str:
    # A lone surrogate is no character, and strict readers refuse the whole line for it.
    return text.encode("utf-8", "backslashreplace").decode()


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return f"a {type(value).__name__}"
