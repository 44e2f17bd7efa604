"""A session that leaves while windows have no answer: they are in its state, in their order, and none is lost."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np
import pytest

from cluster.exported import open_model
from recognise.recogniser import Recogniser, settings_of
from recognise.service.batching import Batcher, Windows
from recognise.service.limits import Limits
from recognise.service.live.messages import Readings as Message
from recognise.service.live.session import Session
from recognise.service.metrics import ServiceMetrics
from recognise.service.serving import Served, Serving
from recognise.stream import as_json
from tests.recognise.exports import export
from tests.recognise.readings import Readings, walk

HELLO = {"hop": 20, "votes": 2, "of": 3}


class Slow:
    """Answers as the model does, but not from one window on until it is let go."""

    def __init__(self, folder: Path, stops_at: int) -> None:
        self.model = open_model(folder)
        self.name = "har"
        self.current = Served(1, self.model.description, cast(Batcher, self))
        self._left = stops_at

    async def logits(self, windows: Windows) -> Windows:
        self._left -= 1
        if self._left < 0:
            await asyncio.Event().wait()
        return self.model.logits(windows)


def session(of: Slow, state: str | None = None) -> Session:
    settings = settings_of(of.model.description, **HELLO)
    return Session("stream", settings, cast(Serving, of), ServiceMetrics(), Limits(), state)


def message(readings: Readings) -> Message:
    return Message(
        times=readings.times.tolist(),
        acceleration=[tuple(row) for row in readings.acceleration.tolist()],
        rotation=[tuple(row) for row in readings.rotation.tolist()],
    )


async def heard(of: Session, last: str) -> list[dict[str, Any]]:
    """The events up to the first of that kind."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(10):
        while not found or found[-1]["event"] != last:
            found += await of.events()
    return found


def plain(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rounded = [{**one, "confidence": round(one["confidence"], 5)} if "confidence" in one else one for one in events]
    return [{key: value for key, value in one.items() if key not in ("latency_ms", "version")} for one in rounded]


def run(what: Coroutine[Any, Any, None]) -> None:
    asyncio.run(what)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return export(tmp_path / "export")


def wanted(folder: Path, readings: Readings) -> list[dict[str, Any]]:
    model = open_model(folder)
    recogniser = Recogniser(model, settings_of(model.description, **HELLO))
    return [as_json(one) for one in recogniser.push(readings.times, readings.acceleration, readings.rotation)]


@pytest.mark.parametrize("stops_at", [0, 3, 5])
def test_windows_without_an_answer_and_a_fault_behind_them_move_in_their_order(folder: Path, stops_at: int) -> None:
    given = walk(400)
    given.acceleration[210, 0] = np.nan  # a bad value between windows
    first, second = given.rows(slice(0, 222)), given.rows(slice(222, 400))

    async def moves() -> None:
        one = session(Slow(folder, stops_at))
        await one.take(message(first), perf_counter())
        began = perf_counter()
        await one.leave(0.05)
        before = await heard(one, "moved")
        assert perf_counter() - began < 5
        one.close()
        assert sum(event["event"] == "label" for event in before) == stops_at
        other = session(Slow(folder, 10**6), before[-1]["resume"])
        await other.take(message(second), perf_counter())
        await other.leave(10.0)
        after = await heard(other, "moved")
        other.close()
        assert plain([*before[:-1], *after[:-1]]) == plain(wanted(folder, given))
        assert after[-1]["at"] == 399 / 50

    run(moves())


def test_all_windows_are_answered_first_where_there_is_time(folder: Path) -> None:
    given = walk(222)

    async def moves() -> None:
        one = session(Slow(folder, 10**6))
        await one.take(message(given.rows(slice(0, 215))), perf_counter())
        await one.take(message(given.rows(slice(215, 222))), perf_counter())  # held: no window needs them yet
        await one.leave(30.0)
        found = await heard(one, "moved")
        one.close()
        assert plain(found[:-1]) == plain(wanted(folder, given))
        assert found[-1]["at"] == 221 / 50

    run(moves())


def test_a_state_beyond_its_size_is_left_out_and_the_client_begins_anew(folder: Path) -> None:
    """60 windows that nobody answered have 276 kB."""
    given = walk(128 + 20 * 60)

    async def moves() -> None:
        one = session(Slow(folder, 0))
        await one.take(message(given), perf_counter())
        await one.leave(0.05)
        (found,) = await heard(one, "moved")
        one.close()
        assert found == {"event": "moved", "at": (128 + 20 * 60 - 1) / 50}

    run(moves())
