"""Reads back log lines in either format, and the lines of other programs between them. Pure."""

import json
import re
import time
from calendar import timegm
from dataclasses import dataclass
from typing import Any

_TEXT = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?P<level>[A-Z]+) (?P<role>[a-z]+(?::\d+)?)"
    r"(?: (?P<address>\S+:\d+))?(?: run (?P<run>[\w.-]+))?: (?P<message>.*)",
    re.DOTALL,
)
_FOREIGN = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[.,](?P<fraction>\d{1,9})[: ] ?(?P<message>.*)", re.DOTALL
)
"""TensorFlow's lines and logs of earlier versions; they have local time."""


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
        """For a person, beside time and role: the message, after its level unless that is `info`."""
        level = f"{self.level.upper()} " if self.level not in ("", "info") else ""
        return level + "\n".join(filter(None, (self.message, self.exception)))

    def to_json(self) -> dict[str, Any]:
        """The fields of docs/logs.md."""
        from cluster.logs.lines import utc

        fields = {
            "time": utc(self.seconds),
            "level": self.level or None,
            "role": self.role or None,
            "address": self.address or None,
            "run": self.run or None,
            "logger": self.logger or None,
            "message": self.message,
        }
        return {**fields, "exception": self.exception} if self.exception else fields


def read_line(text: str) -> LogLine | None:
    """The line; None for the further lines of a message and for a line without a time."""
    if text.startswith("{"):
        return _from_json(text)
    try:
        if found := _TEXT.match(text):
            words = {name: value or "" for name, value in found.groupdict().items()}
            return LogLine(epoch(words.pop("time")), **{**words, "level": words["level"].lower()})
        if found := _FOREIGN.match(text):
            whole = time.mktime(time.strptime(found["time"], "%Y-%m-%d %H:%M:%S"))
            return LogLine(whole + float(f"0.{found['fraction']}"), found["message"])
    except (ValueError, OverflowError):  # the thirteenth month
        pass
    return None


def epoch(rfc_3339: str) -> float:
    """Seconds since the epoch of `2026-11-21T22:45:01.123Z`. Raises ValueError for anything else."""
    whole, _, fraction = rfc_3339.removesuffix("Z").partition(".")
    if not rfc_3339.endswith("Z") or not fraction.isdecimal():
        raise ValueError(rfc_3339)
    return timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction}")


def _from_json(text: str) -> LogLine | None:
    try:
        entry = json.loads(text)
        names = ("level", "role", "address", "run", "logger", "exception")
        fields = {name: str(entry.get(name) or "") for name in names}
        return LogLine(epoch(str(entry["time"])), str(entry["message"]), **fields)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
