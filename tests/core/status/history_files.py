"""The history of a played run, as a file."""

from pathlib import Path

from core.status.events import (
    Stamped,
)
from core.status.history import (
    HistoryFile,
    condensed_events,
    sums_of_state,
)
from tests.core.status.played_run import (
    STARTED,
    Played,
)


def kept(played: Played, folder: Path, seconds: float) -> HistoryFile:
    file = HistoryFile(folder, STARTED, lambda: condensed_events(played.state, seconds))
    assert file.write([])
    played.kept.clear()
    return file


def taken(played: Played, seconds: float = 0.0) -> list[Stamped]:
    found = [*played.kept, (seconds, sums_of_state(played.state))]
    played.kept = []
    return found
