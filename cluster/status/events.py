"""The event log of a run, bounded. Pure."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from cluster.status.view import EventView

FIRST, LATEST = 100, 400
"""How many are kept of the run's beginning, and how many at its end."""
LONGEST = 500
"""Characters of one."""
AGAIN_SECONDS = 10.0
"""The same line within so long is not told again."""


@dataclass
class EventLog:
    """What happened, in words."""

    kept: list[EventView] = field(default_factory=list)
    _told: dict[tuple[str, str], float] = field(default_factory=dict)

    def tell(self, kind: str, text: str, seconds: float, now: datetime) -> EventView | None:
        """One more; None if the same was told a moment ago."""
        shown = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
        if seconds - self._told.get((kind, shown), -AGAIN_SECONDS) < AGAIN_SECONDS:
            return None
        self._told = {key: at for key, at in self._told.items() if seconds - at < AGAIN_SECONDS}
        self._told[kind, shown] = seconds
        event = EventView(iso(now), seconds, kind, shown)
        self.add(event)
        return event

    def add(self, event: EventView) -> None:
        """One that was told before, or is told now."""
        self.kept.append(event)
        if len(self.kept) > FIRST + LATEST:
            del self.kept[FIRST]


def iso(moment: datetime) -> str:
    """ISO 8601, UTC, milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
