"""The values of flags, read from what a person types: numbers, times, intervals, paths."""

import math
import os
import re
from datetime import UTC, datetime, timedelta

from core.ground.errors import UsageError

USUAL_SECONDS = 2.0
SHORTEST_SECONDS = 0.2
LONGEST_SECONDS = 3600.0

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGO = re.compile(
    r"-?\s*(?P<count>\d{1,9})"
    r"\s*(?P<unit>s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)"
    r"(?P<ago>\s+ago)?"
)
_MONTHS = re.compile(r"\d\s*M\b")
"""Months in journalctl: refused, because a person who means minutes would get them, or the other
way round."""
_TIMES = ("%H:%M", "%H:%M:%S")


def whole_number(flag: str, text: str, low: int, high: int) -> int:
    """Return the value of a flag: `1000000`, `1_000_000` or `1e6`.

    Raises UsageError unless it is from `low` to `high`.
    """
    try:
        number = int(text)
    except ValueError:
        real = float_of(text)
        number = low - 1
        if real.is_integer():  # neither nan nor inf
            number = int(real)
    if not low <= number <= high:
        raise UsageError(f"{flag}: expected a whole number from {low} to {high}, got {text!r}")
    return number


def real_number(flag: str, text: str, low: float, high: float) -> float:
    """Return the value of a flag. Raises UsageError unless it is a number from `low` to `high`."""
    number = float_of(text)
    if not low <= number <= high:
        raise UsageError(f"{flag}: expected a number from {low:g} to {high:g}, got {text!r:.80}")
    return number


def float_of(text: str) -> float:
    """Return the number, not a number for a text that is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def interval(flag: str, text: str) -> float:
    """Return the seconds of `--watch [SECONDS]`.

    Raises UsageError for what is no number of seconds.
    """
    seconds = float_of(text)
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise UsageError(
            f"{flag}: expected seconds from {SHORTEST_SECONDS} to {LONGEST_SECONDS:.0f}, or"
            f" nothing, got {text!r}"
        )
    return seconds


def time_from_now(_flag: str, text: str) -> float:
    """Return the time of `--since` in seconds since the epoch."""
    return seconds_of(text, datetime.now().astimezone())


def seconds_of(since: str, now: datetime) -> float:
    """Return the time that `--since` means, in seconds since the epoch.

    It takes `10 min ago`, `-2h`, `today`, `22:45`, `2026-11-21 22:45`, ISO 8601. A time without a
    zone is this machine's, as `now` is. No node gets the text: its zone may differ, and journalctl
    252 refuses `2026-11-21T22:45:01Z`. Raises UsageError for anything else.
    """
    normalized = since.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"now": now, "today": midnight, "yesterday": midnight - timedelta(days=1)}
    if normalized in named:
        return named[normalized].timestamp()
    ago = _AGO.fullmatch(normalized)
    if ago and (ago["ago"] or normalized.startswith("-")) and not _MONTHS.search(since):
        return now.timestamp() - int(ago["count"]) * _SECONDS[ago["unit"][0]]
    for form in _TIMES:
        try:
            clock = datetime.strptime(normalized, form).time()
        except ValueError:
            continue
        return datetime.combine(midnight, clock, midnight.tzinfo).timestamp()
    try:
        moment = datetime.fromisoformat(normalized.removesuffix(" utc").upper())
        if normalized.endswith(" utc"):
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            "--since: expected a time such as '10 min ago', 'today', '22:45' or '2026-11-21"
            f" 22:45', got {since!r}"
        ) from None


def from_here(_flag: str, path: str) -> str:
    """Return the absolute path of what a person named from the working folder."""
    if not path:
        return path
    return os.path.abspath(os.path.expanduser(path))


def format_or_file(flag: str, value: str) -> str:
    """Return the name of a format as it is, and the absolute path of a file."""
    if value.lower().endswith((".yaml", ".yml")):
        return from_here(flag, value)
    return value
