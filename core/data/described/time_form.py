"""How the times of recordings are written: the section `time` of a format."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from core.data.described.moments import zone_of
from core.documents.section import Names, Section, Text


def _known_zone(zone: str) -> str:
    zone_of(zone)
    return zone


Zone = Annotated[Text, AfterValidator(_known_zone)]


class TimeForm(Section):
    """When a reading was made."""

    column: Names | None = Field(
        None, description="or those of date and time; null: readings have only a rate"
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
