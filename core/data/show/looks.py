"""What there is to show of recordings before windows are cut, as plain values."""

from dataclasses import asdict, dataclass
from typing import Any

from core.data.show.portrait import ChannelRow


@dataclass(frozen=True)
class SessionLook:
    """One session: its readings a second over its time, in some equal parts.

    pauses: how often no reading came for longer than windows bridge; longest_pause in seconds.
    unordered: readings with the time of the one before, or an older one.
    """

    person: str
    session: str
    readings: int
    seconds: float
    hertz: float
    pauses: int
    longest_pause: float
    unordered: int
    rates: tuple[float, ...]

    @property
    def name(self) -> str:
        """Person and session."""
        return f"{self.person} {self.session}".strip()


@dataclass(frozen=True)
class LabelLook:
    """One class: its readings, about how long they took, and of how many people they are."""

    label: str
    readings: int
    seconds: float
    people: int


@dataclass(frozen=True)
class Excerpt:
    """The first seconds of a class: (readings, channels), in the units of windows."""

    label: str
    whose: str
    seconds: float
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class RecordingLook:
    """All that is shown of recordings."""

    title: str
    channels: tuple[ChannelRow, ...]
    files: int
    readings: int
    is_whole: bool
    sessions: tuple[SessionLook, ...]
    sessions_left_out: int
    labels: tuple[LabelLook, ...]
    excerpts: tuple[Excerpt, ...]
    left_out: str
    wrong: tuple[str, ...]
    asked: tuple[str, ...]
    """Questions that only a person answers."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
