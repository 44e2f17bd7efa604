"""A session that leaves while windows have no answer keeps them in its state, in order."""

import asyncio
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np
import pytest

from core.exported import open_model
from recognise.recogniser import settings_of
from recognise.service.limits import Limits
from recognise.service.live.messages import Readings as Message
from recognise.service.live.session import LiveSession
from recognise.service.loading import Computer
from recognise.service.metrics import Recent, ServiceMetrics
from recognise.service.serving import Batcher, Served, Serving, Windows
from tests.recognise.exports import export
from tests.recognise.readings import Readings, walk
from tests.recognise.service.streaming import content, library, plain

HELLO = {"hop": 20, "votes": 2, "of": 3}


class Slow:
    """Answers as the model does, but not from one window on until it is let go."""

    def __init__(self, folder: Path, stops_at: int) -> None:
        self.model = open_model(folder)
        self.name = "har"
        self.metrics = ServiceMetrics()
        self.limits = Limits()
        description = self.model.description
        parts = cast(Batcher, self), cast(Computer, self), Recent(description)
        self.current = Served(1, description, *parts)
        self._left = stops_at

    async def logits(self, windows: Windows, of: str) -> Windows:
        self._left -= 1
        if self._left < 0:
            await asyncio.Event().wait()
        return self.model.logits(windows)


def session(of: Slow, state: str | None = None) -> LiveSession:
    settings = settings_of(of.model.description, **HELLO)
    return LiveSession("stream", settings, cast(Serving, of), state)


def message(readings: Readings) -> Message:
    return Message.model_validate(content(readings), strict=False)


Events = list[dict[str, Any]]


async def moved(of: Slow, *parts: Readings, state: str | None = None, seconds: float) -> Events:
    """The events of a session that takes these readings and then leaves, up to its `moved`."""
    one = session(of, state)
    for part in parts:
        await one.take(message(part), perf_counter())
    await one.leave(seconds)
    found: Events = []
    async with asyncio.timeout(10):
        while not found or found[-1]["event"] != "moved":
            found += await one.events()
    one.close()
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return export(tmp_path / "export")


@pytest.mark.parametrize("stops_at", [0, 3, 5])
def test_windows_without_an_answer_and_a_fault_behind_them_move_in_their_order(
    folder: Path, stops_at: int
) -> None:
    given = walk(400)
    given.acceleration[210, 0] = np.nan  # a bad value between windows

    async def moves() -> None:
        first = given.rows(slice(0, 222))
        second = given.rows(slice(222, 400))
        *before, last = await moved(Slow(folder, stops_at), first, seconds=0.05)
        assert sum(event["event"] == "label" for event in before) == stops_at
        state = last["resume"]
        *after, last = await moved(Slow(folder, 10**6), second, state=state, seconds=10.0)
        assert plain([*before, *after]) == plain(library(folder, given, **HELLO))
        assert last["at"] == 399 / 50

    asyncio.run(moves())


def test_a_state_beyond_its_size_is_left_out_and_the_client_begins_anew(folder: Path) -> None:
    """60 windows that nobody answered have 276 kB."""
    given = walk(128 + 20 * 60)
    found = asyncio.run(moved(Slow(folder, 0), given, seconds=0.05))
    assert found == [{"event": "moved", "at": (128 + 20 * 60 - 1) / 50}]
