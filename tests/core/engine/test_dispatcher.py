"""What the dispatcher asks of servers and lanes, with a runtime and lanes that are played."""

import queue
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from core.engine import changes, dispatcher
from core.engine.changes import LONGEST_SECONDS, SETTLE_SECONDS, Changes, Drain, ParameterServerLost
from core.engine.chaos import Fault, Strike
from core.engine.dispatcher import LANES_SECONDS, Dispatcher, NoWorkers
from core.engine.guardian import Loss
from core.engine.membership import Membership
from core.engine.threads import WorkerThread
from core.engine.workers import Answered, Drop, Failed, Item, Joined, Phase
from core.ground.lazy import tf
from tests.hang import HANG_SECONDS
from tests.tables import table

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


def joined(played: Dispatcher, clock: Clock) -> None:
    """Worker 0 is in the cluster, with a lane that takes what it gets."""
    played._next_look = float("inf")  # nobody is probed here
    for event in (Answered(0), Joined(0)):
        played.membership.handle(event, clock.now)
    lane: Any = SimpleNamespace(call=lambda *_: None, close=lambda: None, join=lambda _: None)
    played._threads[0] = lane


def test_the_time_of_a_change_counts_against_no_worker(
    played: Dispatcher, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(_: Any) -> tuple[list[int], list[Any]]:
        clock.now += 1000.0
        return [], []

    joined(played, clock)
    item = Item(1, "update")
    played._carry_out(played.membership.schedule([item], clock.now))
    slow: Any = SimpleNamespace(due=lambda _: True, make=change, settled_at=lambda _: float("inf"))
    monkeypatch.setattr(played, "_changes", slow)
    for _ in range(3):
        played._turn(0.0)
    assert played.membership.workers[0].phase is Phase.BUSY


def test_no_fault_repeats_the_delivery_of_what_must_never_run_twice(played: Dispatcher) -> None:
    strike = Strike(Fault.DUPLICATE, 0, 1, 0.0, 0.0)
    chaos: Any = SimpleNamespace(dispatched=lambda *_: strike)
    guardian: Any = SimpleNamespace(cut=lambda _: None)
    played._chaos = chaos
    played._guardian = guardian
    assert played._strike(0, Item(1, "update")) is strike
    assert played._strike(0, Item(2, "allreduce", repeatable=False)) is None


def test_a_turn_tells_that_the_watchdog_cut_a_server_off(
    played: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    played._next_look = float("inf")  # nobody is probed here
    loss = Loss("ps:0", "127.0.0.1:1", 10)
    monkeypatch.setattr(changes, "losses", lambda: [loss])
    with pytest.raises(ParameterServerLost, match=r"ps:0 at 127\.0\.0\.1:1 is gone"):
        played._turn(0.0)


def test_a_worker_that_holds_parameters_is_not_drained_and_ends_the_run_when_it_is_lost(
    played: Dispatcher,
) -> None:
    guarded: list[str] = []
    guardian: Any = SimpleNamespace(guard=guarded.append)
    played._guardian = guardian
    played.hold_parameters_on(frozenset({1}))
    assert guarded == ["worker:1"]
    assert played.drain(1, 0.0) is Drain.HOLDS_PARAMETERS
    assert played._events.empty(), "nobody is asked to drain it"
    with pytest.raises(ParameterServerLost, match=r"worker:1, or one .* is gone \(it died\)"):
        played._carry_out([Drop(1, "it died")])


def test_a_change_waits_until_no_more_leave_but_not_without_an_end(clock: Clock) -> None:
    quiet: Any = SimpleNamespace()
    membership = Membership(range(WORKERS))
    collected = Changes(quiet, membership, quiet)
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
    membership.workers[1].phase = Phase.SUSPECT
    begun_again = Changes(quiet, membership, quiet)
    begun_again.join(0)
    clock.now += SETTLE_SECONDS
    assert not begun_again.due(clock.now), "a suspect worker may leave too"
    clock.now += LONGEST_SECONDS
    assert begun_again.due(clock.now)


@pytest.mark.parametrize("alive", [True, False])
def test_a_refusal_is_forgotten_with_the_process_that_it_was_of(
    played: Dispatcher, monkeypatch: pytest.MonkeyPatch, alive: bool
) -> None:
    refused = {0: "it cannot load the library", 1: "nor this one"}
    runtime: Any = SimpleNamespace(refused=refused)
    monkeypatch.setattr(played, "_runtime", runtime)
    monkeypatch.setattr(played, "_ask", lambda task, report: report(alive))
    played._look_for(0, None)
    assert (0 in refused) == alive
    assert 1 in refused


def test_workers_that_never_join_are_named(
    played: Dispatcher, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turn(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(played, "_turn", turn)
    with pytest.raises(NoWorkers, match="worker:31 at 127"):
        played.wait_for_workers(1, 3.0)


@pytest.mark.parametrize(
    ("fault", "answers", "expected", "injected"), table("core/engine/tables", "deliveries")
)
def test_a_fault_strikes_the_delivery_of_a_call_that_did_not_fail_by_itself(
    fault: str, answers: list[Any], expected: object, injected: bool
) -> None:
    struck: list[Strike] = []
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    runtime: Any = SimpleNamespace(on_worker=lambda _: nullcontext())
    lane = WorkerThread(runtime, 0, events, struck.append)
    function = mock.Mock()
    lost = tf.errors.UnavailableError(None, None, "Socket closed")
    function.answer.side_effect = [lost if value == "lost" else value for value in answers]
    lane.call(Item(1, function), 7, Strike(Fault(fault), 0, 1, 0.0, 0.0))
    event = events.get(timeout=HANG_SECONDS)
    lane.close()
    lane.join(HANG_SECONDS)
    assert (event.reason if isinstance(event, Failed) else event.value) == expected
    assert function.answer.call_count == len(answers)
    assert bool(struck) == injected
