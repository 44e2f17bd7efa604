"""Moments as people and devices write them, a pattern and a zone, and a format's section `time`."""

import re
from datetime import UTC, datetime, tzinfo
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field

from core.documents.section import Names, Section, Text

_MIDNIGHT = datetime(1900, 1, 1)
"""The day that a time of day alone gets."""
_WRITTEN = (
    ("%", "%%"),
    (r"\d{4}([-/.]?)\d\d\1\d\d(?!\d)", r"%Y\1%m\1%d"),
    (r"\b\d{1,2}([-/.])\d{1,2}\1\d{4}", r"%d\1%m\1%Y"),
    (r"\b\d{1,2}([-/.])\d{1,2}\1\d\d\b", r"%d\1%m\1%y"),
    (r"\b\d{1,2}([- ])[A-Za-z]{3}\1\d{4}", r"%d\1%b\1%Y"),
    (r"\d{1,2}:\d\d:\d\d", "%H:%M:%S"),
    (r"%S([.,:])\d{1,6}", r"%S\1%f"),
    (r"%H(\S+)( ?)[AaPp][Mm]", r"%I\1\2%p"),
    (r"(%[Sf] ?)([+-]\d\d:?\d\d|Z)", r"\1%z"),
)
"""What stands in a moment, and in its pattern."""


def zone_of(name: str) -> tzinfo:
    """Return a zone by its name, or by its hours such as `+02:00`. Raises ValueError."""
    try:
        if name.startswith(("+", "-")):
            return datetime.strptime(name, "%z").tzinfo or UTC
        return ZoneInfo(name)
    except (KeyError, OSError):
        raise ValueError(
            f"no zone is {name!r:.40} here: write one such as Europe/Berlin, or its hours, +02:00;"
            " a machine that knows none needs `pip install tzdata`"
        ) from None


def moment_of(text: str, pattern: str | None) -> datetime:
    """Return what is written by a pattern, or as ISO 8601 without one. Raises ValueError."""
    return datetime.fromisoformat(text) if pattern is None else datetime.strptime(text, pattern)


def is_of_day(pattern: str | None) -> bool:
    """Whether a pattern is of a time of day alone, which begins again at midnight."""
    return pattern is not None and re.search("%[^HIMSfpzZX%]", pattern) is None


def seconds_of(moment: datetime, zone: tzinfo | None, *, of_day: bool) -> float:
    """Return seconds since 1970, or of the day; `zone` is that of a moment without one.

    Raises ValueError for a time that its zone has twice or never, as when summer time ends.
    """
    if of_day:
        return (moment.replace(tzinfo=None) - _MIDNIGHT).total_seconds()
    zoned = moment.replace(tzinfo=moment.tzinfo or zone or UTC)
    if zoned.utcoffset() != zoned.replace(fold=1).utcoffset():
        raise ValueError(f"{moment} is not one time in {zoned.tzinfo}")
    return zoned.timestamp()


def patterns_of(text: str) -> list[str]:
    """Return the patterns that a moment may be written by; none where it has no seconds."""
    pattern = text
    for expression, sign in _WRITTEN:
        pattern = re.sub(expression, sign, pattern, count=1)
    american = re.sub(r"^(\W*)%d(\W)%m", r"\1%m\2%d", pattern)
    forms = {pattern: None, american: None} if "%S" in pattern else {}
    return [form for form in forms if _is_written(text, form)]


def _is_written(text: str, pattern: str) -> bool:
    try:
        return bool(moment_of(text, pattern))
    except (ValueError, re.error):
        return False


def _known_zone(zone: str) -> str:
    zone_of(zone)
    return zone


Zone = Annotated[Text, AfterValidator(_known_zone)]


class TimeForm(Section):
    """When a reading was made."""

    column: Names | None = Field(
        None,
        description="the column of the time, or those of date and time; null: there is only a rate",
    )
    unit: Literal["s", "ms", "us", "ns", "iso"] = Field(
        "s", description="of that column; `iso` is a date and a time as ISO 8601 writes them"
    )
    pattern: Text | None = Field(
        None, description="how the column is written, such as %d/%m/%Y %H:%M:%S.%f; no `unit` then"
    )
    zone: Zone | None = Field(
        None, description="of times without one, in intervals too: Europe/Berlin, or +02:00"
    )
    spread: bool = Field(
        False, description="whether readings of one time are spread evenly up to the next time"
    )
    hertz: float | None = Field(
        None,
        ge=1.0,
        le=1000.0,
        description=(
            "readings a second: the windows' rate, unless jobs.train.data.sampling_hz says another"
        ),
    )
    longest_gap_seconds: float | None = Field(
        None,
        ge=0.01,
        le=60.0,
        description="a longer pause ends the windows before it; null: 0.25, or 5 steps if longer",
    )

    @property
    def written(self) -> str:
        """The form in which a moment is written."""
        description = self.pattern or "a date and a time as ISO 8601"
        if self.zone is None:
            return description
        return f"{description}, once in {self.zone} (or with its hours: +02:00)"
