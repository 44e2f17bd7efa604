"""The membership cases as facts in, instructions out: no sockets, no clock, no TensorFlow."""

import pytest

from cluster.engine.membership import MAXIMUM_FAILURES_PER_WORKER, MAXIMUM_OWN_ERRORS, Membership, Phase
from cluster.engine.messages import (
    Abandon,
    Add,
    Answered,
    Dispatch,
    Drop,
    Failed,
    Fence,
    GiveUp,
    Item,
    Joined,
    JoinFailed,
    Probed,
    ProbeSuspect,
    Replied,
)
from cluster.engine.worker_state import AdaptiveDeadline, Backoff
from tests.engine.played_membership import UNAVAILABLE, delivered, items, membership


def phases(core: Membership) -> list[Phase]:
    return [worker.phase for worker in core.workers.values()]


def test_a_worker_absent_at_connect_keeps_nobody_waiting_and_joins_when_it_comes() -> None:
    core = membership(2, 0)
    first, second, third = items(1, 2, 3)
    assert core.live == {0}
    assert core.absent(0.0) == [1]
    assert core.schedule([first, second], 1.0) == [Dispatch(0, first, 1)]
    assert core.handle(Replied(0, 1, None, 0.1), 1.1) == [delivered(first, 0), Dispatch(0, second, 2)]
    assert core.handle(Answered(1), 2.0) == [Add(1)]
    assert core.live == {0}, "not before the runtime has taken it in"
    assert core.handle(Joined(1), 2.1) == []
    assert core.schedule([third], 2.2) == [Dispatch(1, third, 3)]


def test_a_join_that_fails_is_tried_again_ever_later_and_leaves_no_trace_in_the_cluster() -> None:
    core = membership(2, 0)
    waits, now = [], 0.0
    for _ in range(4):
        assert core.handle(Answered(1), now) == [Add(1)]
        assert core.handle(JoinFailed(1, UNAVAILABLE), now) == [Drop(1, UNAVAILABLE)]
        assert core.live == {0}
        assert core.absent(now) == []
        waits.append(core.workers[1].due - now)
        now = core.workers[1].due
        assert core.absent(now) == [1]
    assert waits == [0.5, 1.0, 2.0, 4.0]


def test_one_dead_for_good_does_not_keep_another_from_returning() -> None:
    core = membership(3, 0, 1, 2)
    one, two, three = items(1, 2, 3)
    core.schedule([one, two, three], 0.0)
    assert core.handle(Failed(0, 1, UNAVAILABLE), 1.0) == [Drop(0, UNAVAILABLE)]
    assert core.handle(Failed(1, 2, UNAVAILABLE), 1.0) == [Drop(1, UNAVAILABLE)]
    assert core.live == {2}
    # What was given up last is the stalest and goes first.
    assert core.handle(Replied(2, 3, None, 0.1), 1.1) == [delivered(three, 2), Dispatch(2, two, 4)]
    assert core.handle(Answered(1), 3.0) == [Add(1)]
    assert core.handle(Joined(1), 3.1) == [Dispatch(1, one, 5)]
    assert core.live == {1, 2}
    assert core.absent(3.1) == [0], "still looked for, and nobody waits for it"


def test_one_stopped_during_the_run_is_suspected_probed_fenced_and_dropped() -> None:
    core = membership(2, 0, 1)
    stuck, other = items(1, 2)
    core.schedule([stuck, other], 0.0)
    core.handle(Replied(1, 2, None, 0.1), 0.1)
    assert core.tick(9.9) == []
    # The work goes to the others at once, whatever the probe will say.
    assert core.tick(10.0) == [ProbeSuspect(0), Dispatch(1, stuck, 3)]
    assert core.live == {0, 1}
    assert core.handle(Probed(0, alive=False), 12.0) == [Fence(0, "no reply, and its server does not answer a probe")]
    assert core.handle(Failed(0, 1, UNAVAILABLE), 12.1) == [Drop(0, UNAVAILABLE)]
    assert core.live == {1}
    assert core.handle(Replied(1, 3, None, 0.1), 12.2) == [delivered(stuck, 1, attempts=2)]
    assert core.open_items == 0


def test_a_call_that_not_even_the_fence_ends_is_abandoned() -> None:
    core = membership(1, 0)
    core.schedule(items(1), 0.0)
    core.tick(10.0)
    core.handle(Probed(0, alive=False), 10.0)
    assert core.tick(14.9) == []
    assert core.tick(15.0) == [Abandon(0), Drop(0, "its call never came back")]
    assert core.live == frozenset()
    assert core.handle(Replied(0, 1, None, 15.0), 15.1) == [], "nobody listens to a thread left behind"
    assert core.open_items == 1


def test_a_thread_left_behind_cannot_speak_for_its_worker_s_next_call() -> None:
    core = membership(1, 0)
    first, second = items(1, 2)
    core.schedule([first], 0.0)
    core.tick(10.0)
    core.handle(Probed(0, alive=False), 10.0)
    core.tick(15.0)
    core.handle(Answered(0), 16.0)
    assert core.handle(Joined(0), 16.0) == [Dispatch(0, first, 2)]
    core.schedule([second], 16.0)
    assert core.handle(Replied(0, 1, "old", 16.0), 16.1) == []
    assert core.handle(Failed(0, 1, UNAVAILABLE), 16.1) == []
    assert core.workers[0].phase is Phase.BUSY
    assert core.handle(Replied(0, 2, None, 0.1), 16.2) == [delivered(first, 0, attempts=2), Dispatch(0, second, 3)]


def test_one_stopped_while_functions_are_traced_fails_to_join_or_is_overdue_at_its_first_item() -> None:
    core = membership(2, 0)
    assert core.handle(Answered(1), 0.0) == [Add(1)]
    assert core.handle(JoinFailed(1, UNAVAILABLE), 5.0) == [Drop(1, UNAVAILABLE)]
    one, two = items(1, 2)
    assert core.schedule([one, two], 5.0) == [Dispatch(0, one, 1)]
    assert core.handle(Answered(1), 6.0) == [Add(1)]
    # Stopped between joining and its first item: the deadline of a first reply holds.
    assert core.handle(Joined(1), 6.1) == [Dispatch(1, two, 2)]
    assert core.handle(Replied(0, 1, None, 0.1), 6.2) == [delivered(one, 0)]
    assert core.tick(16.1) == [ProbeSuspect(1), Dispatch(0, two, 3)]


def test_a_late_reply_counts_once_whoever_is_first() -> None:
    core = membership(2, 0, 1)
    late, other = items(1, 2)
    core.schedule([late, other], 0.0)
    core.handle(Replied(1, 2, None, 0.1), 0.1)
    assert core.tick(10.0) == [ProbeSuspect(0), Dispatch(1, late, 3)]
    assert core.handle(Probed(0, alive=True), 10.1) == []
    assert core.workers[0].phase is Phase.SLOW
    assert core.handle(Replied(0, 1, None, 0.1), 10.2) == [delivered(late, 0, attempts=2)]
    assert core.handle(Replied(1, 3, None, 0.1), 10.3) == []
    assert phases(core) == [Phase.IDLE, Phase.IDLE]
    assert core.late_replies == 1


def test_a_reply_after_the_fence_is_delivered_and_its_worker_must_join_anew() -> None:
    core = membership(1, 0)
    (item,) = items(1)
    core.schedule([item], 0.0)
    core.tick(10.0)
    core.handle(Probed(0, alive=False), 12.0)
    assert core.handle(Replied(0, 1, None, 0.1), 12.1) == [
        Drop(0, "fenced; its reply came late"),
        delivered(item, 0),
    ]
    assert (core.live, core.queued, core.open_items) == (frozenset(), 0, 0)


def test_a_reply_between_suspicion_and_probe_clears_the_worker() -> None:
    core = membership(1, 0)
    first, second = items(1, 2)
    core.schedule([first, second], 0.0)
    core.tick(10.0)
    assert core.handle(Replied(0, 1, None, 0.1), 10.5) == [delivered(first, 0), Dispatch(0, second, 2)]
    assert core.handle(Probed(0, alive=False), 12.0) == [], "the probe speaks of a call that has come back"
    assert core.workers[0].phase is Phase.BUSY


def test_a_slow_worker_is_fenced_when_it_uses_up_its_patience() -> None:
    core = membership(1, 0)
    core.schedule(items(1), 0.0)
    core.tick(10.0)
    core.handle(Probed(0, alive=True), 10.0)
    assert core.tick(39.9) == []
    assert core.tick(40.0) == [Fence(0, "alive, but still without a reply")]


def test_an_item_given_up_twice_is_not_sent_out_while_another_worker_is_at_it() -> None:
    core = membership(3, 0, 1, 2)
    (item,) = items(1)
    core.schedule([item], 0.0)
    assert core.tick(10.0) == [ProbeSuspect(0), Dispatch(1, item, 2)]
    assert core.handle(Failed(0, 1, UNAVAILABLE), 11.0) == [Drop(0, UNAVAILABLE)]
    assert core.handle(Failed(1, 2, UNAVAILABLE), 12.0) == [Drop(1, UNAVAILABLE), Dispatch(2, item, 3)]


def test_an_error_of_our_own_ends_the_run_after_a_few_attempts() -> None:
    core = membership(MAXIMUM_OWN_ERRORS, *range(MAXIMUM_OWN_ERRORS))
    (item,) = items(1)
    core.schedule([item], 0.0)
    for attempt in range(1, MAXIMUM_OWN_ERRORS):
        task = attempt - 1
        assert core.handle(Failed(task, attempt, "InvalidArgumentError: no", transient=False), 1.0) == [
            Drop(task, "InvalidArgumentError: no"),
            Dispatch(task + 1, item, attempt + 1),
        ]
    last = Failed(MAXIMUM_OWN_ERRORS - 1, MAXIMUM_OWN_ERRORS, "InvalidArgumentError: no", transient=False)
    assert core.handle(last, 1.0) == [
        Drop(MAXIMUM_OWN_ERRORS - 1, "InvalidArgumentError: no"),
        GiveUp(item, "InvalidArgumentError: no"),
    ]


def test_an_item_that_ends_every_worker_is_given_up_at_last() -> None:
    core = membership(1)
    (item,) = items(1)
    core.schedule([item], 0.0)
    bound = MAXIMUM_FAILURES_PER_WORKER + 1
    for attempt in range(1, bound + 1):
        core.handle(Answered(0), 0.0)
        assert core.handle(Joined(0), 0.0) == [Dispatch(0, item, attempt)]
        last = [GiveUp(item, UNAVAILABLE)] if attempt == bound else []
        assert core.handle(Failed(0, attempt, UNAVAILABLE), 0.0) == [Drop(0, UNAVAILABLE), *last]


def test_each_function_has_deadlines_of_its_own() -> None:
    core = membership(1, 0)
    for k in range(3):
        core.schedule([Item(k, "train")], 0.0)
        core.handle(Replied(0, k + 1, None, 0.1), 0.0)
    core.schedule([Item(3, "train")], 0.0)
    core.handle(Replied(0, 4, None, 0.1), 0.0)
    known = core.workers[0].deadlines["train"].seconds()
    core.schedule([Item(4, "evaluate")], 0.0)
    first = core.timing.first_reply_seconds
    assert known < first
    assert core.tick(known) == []
    assert core.tick(first) == [ProbeSuspect(0)]


def test_a_suspect_that_nobody_probes_is_fenced() -> None:
    core = membership(1, 0)
    core.schedule(items(1), 0.0)
    due = core.timing.first_reply_seconds
    assert core.tick(due) == [ProbeSuspect(0)]
    assert core.next_due() == due + core.timing.probe_seconds
    (fence,) = core.tick(due + core.timing.probe_seconds)
    assert fence == Fence(0, "no reply, and no probe result in time")


def test_time_in_which_the_coordinator_stood_still_is_not_held_against_a_worker() -> None:
    core = membership(1, 0)
    core.schedule(items(1), 0.0)
    core.excuse(7.0)
    assert core.tick(16.9) == []
    assert core.tick(17.0) == [ProbeSuspect(0)]


def test_replies_to_a_run_that_was_broken_off_are_not_taken_for_this_one_s() -> None:
    core = membership(2, 0, 1)
    (old,) = items(1)
    (new,) = items(1)
    core.schedule([old], 0.0)
    core.withdraw()
    assert core.open_items == 0
    assert core.schedule([new], 0.0) == [Dispatch(1, new, 2)]
    assert core.handle(Replied(0, 1, "of the old run", 0.1), 0.1) == []
    assert core.handle(Replied(1, 2, None, 0.1), 0.2) == [delivered(new, 1)]


def test_who_answers_twice_is_added_once() -> None:
    core = membership(1)
    assert core.handle(Answered(0), 0.0) == [Add(0)]
    assert core.handle(Answered(0), 0.0) == []


def test_the_next_due_time_is_the_earliest_of_those_that_wait() -> None:
    core = membership(2, 0, 1)
    assert core.next_due() is None
    core.schedule(items(1), 3.0)
    core.schedule(items(2), 1.0)
    assert core.next_due() == 11.0


def test_the_first_reply_has_its_own_deadline_and_then_the_measured_times_decide() -> None:
    deadline = AdaptiveDeadline(first_seconds=60.0, floor_seconds=1.0, spreads=8.0, warmup=3)
    assert deadline.median_seconds is None
    deadline.observe(0.9)
    deadline.observe(1.0)
    assert deadline.seconds() == 60.0
    deadline.observe(1.1)
    assert deadline.median_seconds == 1.0
    assert deadline.seconds() == pytest.approx(2.0), "twice the median, which exceeds 1 + 8 x 0.1"
    for seconds in (0.6, 1.4):
        deadline.observe(seconds)
    deadline.observe(1.8)
    assert deadline.seconds() == pytest.approx(1.05 + 8 * 0.25)


def test_fast_replies_do_not_make_the_deadline_hasty_and_one_outlier_does_not_make_it_lax() -> None:
    deadline = AdaptiveDeadline(floor_seconds=5.0)
    for _ in range(10):
        deadline.observe(0.01)
    deadline.observe(50.0)
    assert deadline.seconds() == 5.0


def test_a_worker_that_became_slow_is_measured_by_its_latest_replies() -> None:
    deadline = AdaptiveDeadline(floor_seconds=0.1, history=8)
    for seconds in [0.1] * 20 + [3.0] * 8:
        deadline.observe(seconds)
    assert deadline.median_seconds == 3.0
    assert deadline.seconds() == 6.0


def test_waiting_times_double_to_a_ceiling() -> None:
    backoff = Backoff(first_seconds=0.5, ceiling_seconds=3.0)
    assert [backoff.failed() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.failures == 5


@pytest.mark.parametrize(
    ("replies", "seconds", "forgiven"), [(10, 8.0, True), (9, 1000.0, False), (1000, 7.9, False)]
)  # fmt: skip
def test_failures_are_forgiven_after_enough_replies_in_a_time_that_grows_with_them(
    replies: int, seconds: float, forgiven: bool
) -> None:
    backoff = Backoff(first_seconds=0.5, healthy_replies=10, healthy_waits=4.0)
    assert [backoff.failed() for _ in range(3)] == [0.5, 1.0, 2.0]
    backoff.replied(replies, seconds)
    assert backoff.failures == (0 if forgiven else 3)
    assert backoff.failed() == (0.5 if forgiven else 4.0)


def waits_of_one_that_dies_after(replies: int, seconds_each: float) -> list[float]:
    """How long a worker is left alone that comes back at once each time, and dies after so many items."""
    core, now, waits, attempt = membership(1), 0.0, [], 0
    for life in range(8):
        core.handle(Answered(0), now)
        core.handle(Joined(0), now)
        for number in range(replies + 1):
            attempt += 1
            core.schedule([Item(life * 1000 + number, "update")], now)
            now += seconds_each
            if number < replies:
                core.handle(Replied(0, attempt, None, seconds_each), now)
        core.handle(Failed(0, attempt, UNAVAILABLE), now)
        core.withdraw()
        waits.append(core.workers[0].due - now)
        now = core.workers[0].due
    return waits


def test_one_that_dies_after_its_first_item_again_and_again_is_asked_ever_less_often() -> None:
    rising = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert waits_of_one_that_dies_after(1, 0.1) == pytest.approx(rising)
    assert waits_of_one_that_dies_after(1, 60.0) == pytest.approx(rising), "one slow reply makes no stretch either"


def test_one_that_works_well_in_between_is_taken_back_soon() -> None:
    assert waits_of_one_that_dies_after(20, 1.0) == pytest.approx([0.5] * 8)


def test_a_node_that_dies_ten_thousand_times_is_still_asked_for() -> None:
    backoff = Backoff()
    assert max(backoff.failed() for _ in range(10_000)) == backoff.ceiling_seconds
