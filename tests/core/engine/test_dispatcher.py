"""What the dispatcher asks of servers and lanes, with a runtime and lanes that are played."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from core.engine import changes, dispatcher
from core.engine.changes import LONGEST_SECONDS, SETTLE_SECONDS, Changes
from core.engine.dispatcher import LANES_SECONDS, Dispatcher
from core.engine.membership import Membership
from core.engine.messages import Drop

WORKERS = 32


class Clock:
    """Moves by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (dispatcher, changes):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


@pytest.fixture
def played(clock: Clock) -> Iterator[Dispatcher]:
    del clock
    runtime: Any = SimpleNamespace(
        peers=SimpleNamespace(
            workers=tuple(f"127.0.0.1:{number + 1}" for number in range(WORKERS))
        ),
        guardian=SimpleNamespace(),
    )
    with Dispatcher(runtime) as made:
        yield made


def test_lanes_that_hang_have_one_deadline_together(played: Dispatcher, clock: Clock) -> None:
    closed: list[int] = []

    def hang(seconds: float) -> None:
        clock.now += seconds
        assert len(closed) == WORKERS, "each was told to end before the first is waited for"

    for task in range(WORKERS):
        lane: Any = SimpleNamespace(close=lambda task=task: closed.append(task), join=hang)
        played._threads[task] = lane
    begin = clock.now
    played.close()
    assert clock.now - begin <= LANES_SECONDS


def test_servers_are_asked_once_a_turn_whatever_number_of_workers_left(
    played: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    played._next_look = float("inf")  # nobody is probed here
    monkeypatch.setattr(
        dispatcher, "raise_if_server_lost", lambda _, reasons: asked.append(reasons)
    )
    played._carry_out([Drop(task, f"call {task} failed") for task in range(10)])
    played._turn(0.0)
    played._turn(0.0)
    assert asked == [[f"call {task} failed" for task in range(10)]]


def test_a_change_waits_until_no_more_leave_but_not_without_an_end(clock: Clock) -> None:
    quiet: Any = SimpleNamespace()
    collected = Changes(quiet, Membership(range(WORKERS)), quiet)
    assert not collected.due(clock.now)
    begin = clock.now
    for task in range(WORKERS):
        collected.leave(task)
        assert collected.due(clock.now) == (clock.now - begin >= LONGEST_SECONDS)
        clock.now += SETTLE_SECONDS * 0.9
    assert clock.now - begin > LONGEST_SECONDS
    collected.leave(0)
    clock.now += SETTLE_SECONDS
    assert collected.due(clock.now)
