"""Workers that somebody is about to end, as facts in, instructions out."""

import pytest

from cluster.engine.membership import Phase
from cluster.engine.messages import (
    Add,
    Answered,
    Dispatch,
    DrainAsked,
    Drop,
    Failed,
    Joined,
    Probed,
    ReleaseWorker,
    Replied,
    Silent,
)
from tests.engine.played_membership import UNAVAILABLE, delivered, items, membership


def test_a_draining_worker_finishes_its_item_and_gets_no_other() -> None:
    core = membership(2, 0, 1)
    first, second, third = items(1, 2, 3)
    core.schedule([first, second, third], 0.0)
    assert core.handle(DrainAsked(0), 0.1) == []
    assert core.handle(Replied(0, 1, None, 0.1), 0.2) == [delivered(first, 0), ReleaseWorker(0)]
    assert (core.live, core.queued, core.workers[0].phase) == (frozenset({1}), 1, Phase.DRAINED)
    assert core.handle(Replied(1, 2, None, 0.1), 0.3) == [delivered(second, 1), Dispatch(1, third, 3)]
    assert [worker.departures for worker in core.workers.values()] == [0, 0], "it did not have to leave"


def test_an_idle_worker_is_drained_at_once_and_asked_again_too() -> None:
    core = membership(2, 0, 1)
    assert core.handle(DrainAsked(0), 0.0) == [ReleaseWorker(0)]
    assert core.idle == [1]
    assert core.handle(DrainAsked(0), 100.0) == [ReleaseWorker(0)]
    assert core.tick(core.timing.drained_seconds) == []
    assert core.drained == [0], "the second wish counts from its own time"


def test_a_drained_worker_is_taken_back_as_another_process_and_works_like_any_other() -> None:
    core = membership(2, 0, 1)
    core.handle(DrainAsked(0), 0.0)
    assert core.handle(Answered(0), 0.5) == [], "the process that is about to be ended"
    assert core.absent(0.5) == []
    assert core.handle(Silent(0), 1.0) == []
    assert core.absent(1.0) == [0]
    assert core.handle(Silent(0), 1.1) == []
    assert core.handle(Answered(0), 2.0) == [Add(0)]
    assert core.handle(Joined(0), 2.0) == []
    one, two, three = items(1, 2, 3)
    core.schedule([one, two, three], 2.0)
    assert core.handle(Replied(0, 1, None, 0.1), 2.1) == [delivered(one, 0), Dispatch(0, three, 3)]


def test_a_drained_worker_that_nobody_ends_is_taken_back() -> None:
    core = membership(2, 0, 1)
    core.handle(DrainAsked(0), 0.0)
    assert core.next_due() == core.timing.drained_seconds
    core.tick(core.timing.drained_seconds)
    assert core.handle(Answered(0), core.timing.drained_seconds) == [Add(0)]


def test_the_last_worker_goes_on_until_another_one_is_there() -> None:
    core = membership(3, 0, 1)
    first, second, third, fourth = items(1, 2, 3, 4)
    core.schedule([first, second, third], 0.0)
    core.handle(DrainAsked(0), 0.0)
    core.handle(DrainAsked(1), 0.0)
    assert core.handle(Replied(1, 2, None, 0.1), 0.1) == [delivered(second, 1), ReleaseWorker(1)]
    assert core.handle(Replied(0, 1, None, 0.1), 0.2) == [delivered(first, 0), Dispatch(0, third, 3)]
    assert not core.replaceable(0)
    assert core.handle(Replied(0, 3, None, 0.1), 0.3) == [delivered(third, 0)]
    assert core.idle == [0]
    core.handle(Answered(2), 0.4)
    assert core.handle(Joined(2), 0.4) == [ReleaseWorker(0)]
    assert core.schedule([fourth], 0.5) == [Dispatch(2, fourth, 4)]


def test_a_drained_worker_is_taken_back_when_nobody_else_is_left() -> None:
    core = membership(2, 0, 1)
    (item,) = items(1)
    core.handle(DrainAsked(0), 0.0)
    core.schedule([item], 0.0)
    core.handle(Failed(1, 1, UNAVAILABLE), 1.0)
    core.tick(1.0)
    assert core.handle(Answered(0), 1.0) == [Add(0)]
    assert core.handle(Joined(0), 1.0) == [Dispatch(0, item, 2)]


@pytest.mark.parametrize("alive", [True, False])
def test_a_suspect_is_nobody_to_leave_the_work_to(alive: bool) -> None:
    core = membership(2, 0, 1)
    core.schedule(items(1), 0.0)
    core.tick(10.0)
    core.handle(Probed(0, alive=alive), 10.0)
    core.handle(DrainAsked(1), 10.1)
    assert core.handle(Replied(1, 2, None, 0.1), 10.2) == [delivered(items(1)[0], 1, attempts=2)]
    assert core.workers[1].phase is Phase.IDLE


def test_who_leaves_while_it_drains_and_comes_back_drains_no_more() -> None:
    core = membership(2, 0, 1)
    first, second = items(1, 2)
    core.schedule([first], 0.0)
    core.handle(DrainAsked(0), 0.0)
    assert core.handle(Failed(0, 1, UNAVAILABLE), 1.0) == [Drop(0, UNAVAILABLE), Dispatch(1, first, 2)]
    core.handle(Answered(0), 2.0)
    assert core.handle(Joined(0), 2.0) == []
    assert core.schedule([second], 2.0) == [Dispatch(0, second, 3)]


def test_an_absent_worker_that_is_drained_does_not_join_before_it_has_been_ended() -> None:
    core = membership(2, 0)
    assert core.handle(DrainAsked(1), 0.0) == [ReleaseWorker(1)]
    assert core.handle(Answered(1), 0.1) == []
    core.handle(Silent(1), 0.5)
    assert core.handle(Answered(1), 1.0) == [Add(1)]


def test_who_is_asked_while_it_joins_is_released_as_soon_as_it_is_in() -> None:
    core = membership(2, 0)
    core.handle(Answered(1), 0.0)
    assert core.handle(DrainAsked(1), 0.0) == []
    assert core.handle(Joined(1), 0.1) == [ReleaseWorker(1)]
