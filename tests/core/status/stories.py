"""The stories of stories.yaml, played."""

from collections.abc import Iterator
from typing import Any

from core.status import events
from core.status.apply import replay
from core.status.events import Stamped
from core.status.history import condensed_events, events_in, line_of
from core.status.parts import Seen
from tests.core.status import played_run
from tests.core.status.played_run import STARTED, Played
from tests.tables import table

STORIES = table("core/status/stories")


def through_json(found: list[Stamped]) -> list[Stamped]:
    """The events as another process reads them."""
    return list(events_in(line_of(event, at, STARTED) for at, event in found))


def read_back(played: Played, seconds: float) -> Played:
    """The run in another process, which has read its history."""
    return Played(replay(through_json(condensed_events(played.state, seconds))))


def told(story: dict[str, Any]) -> Iterator[tuple[Played, float, dict[str, Any]]]:
    """The run after each step, at its second, and what its picture has to show then."""
    played: Played = getattr(played_run, story["begins"])()
    for step in story["steps"]:
        at: float = step["at"]
        for name, given in step.items():
            if name == "look":
                played.look(at, **{task: Seen(*seen) for task, seen in given.items()})
            elif name == "work":
                played.work(*given)
            elif name == "read_back":
                played = read_back(played, at)
            elif name not in ("at", "shows"):
                played.emit(getattr(events, name)(*given), at)
        yield played, at, step.get("shows", {})
