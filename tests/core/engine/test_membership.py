"""The membership cases as facts in, instructions out: no sockets, no clock, no TensorFlow.

`membership.yaml` has the cases. A line says at which second what happens or what is asked, and what
follows: `1.1 replied 0 1 => Deliver 1 of 0 in 0.1 s (1); Dispatch 0 2 2`. The numbers are those of
the worker and of its attempt, or of the items, and how often a delivered one was sent. `=>` with
nothing behind it: nothing follows.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count, islice
from typing import Any

import pytest

from core.engine.membership import Membership
from core.engine.workers import (
    AdaptiveDeadline,
    Answered,
    Deliver,
    DrainAsked,
    Event,
    Failed,
    Instruction,
    Item,
    Joined,
    JoinFailed,
    Phase,
    Probation,
    Probed,
    Replied,
    Silent,
)
from core.ground.waiting import Backoff
from tests.core.engine.played_membership import membership
from tests.tables import table

CASES: dict[str, str] = table("core/engine/membership")
EVENTS: Mapping[str, Callable[..., Event]] = {
    "answered": Answered,
    "joined": Joined,
    "join-failed": partial(JoinFailed, reason="gone"),
    "replied": partial(Replied, value=None, seconds=0.1),
    "failed": partial(Failed, reason="gone"),
    "failed-by-us": partial(Failed, reason="gone", transient=False),
    "lacks": partial(Failed, reason="gone", transient=False, lacks_file=True),
    "alive": partial(Probed, alive=True),
    "dead": partial(Probed, alive=False),
    "drain": DrainAsked,
    "silent": Silent,
}


def happens(core: Membership, now: float, verb: str, *words: str) -> Any:
    """Tell or ask what a line says; the instructions that follow, or the answer."""
    numbers = [int(word) for word in words if word.isdigit()]
    match verb:
        case "schedule":
            function = next((word for word in words if word.isalpha()), "update")
            return core.schedule([Item(number, function) for number in numbers], now)
        case "schedule-once":
            function = "allreduce"
            return core.schedule(
                [Item(number, function, repeatable=False) for number in numbers], now
            )
        case _ if verb in EVENTS:
            return core.handle(EVENTS[verb](*numbers), now)
        case "tick":
            return core.tick(now)
        case "absent":
            return core.absent(now)
        case "excuse" | "withdraw" | "replaceable" | "next_due" | "redefined":
            return getattr(core, verb)(*numbers)
        case "phase" | "departures":
            return [getattr(worker, verb) for worker in core.workers.values()]
        case _:
            return getattr(core, verb)


def written(value: Any) -> Iterator[str]:
    """The words of instructions or of an answer."""
    match value:
        case None:
            return
        case list() | frozenset():
            for each in value:
                yield from written(each)
        case Deliver(outcome):
            told = f"in {outcome.seconds} s ({outcome.attempts})"
            yield f"Deliver {outcome.item.id} of {outcome.task} {told}"
        case _ if isinstance(value, Instruction):
            fields = [str(getattr(field, "id", field)) for field in vars(value).values()]
            yield " ".join([type(value).__name__, *fields])
        case _:
            yield str(getattr(value, "value", value))


@pytest.mark.parametrize("name", CASES)
def test_what_follows(name: str) -> None:
    beginning, *lines = CASES[name].splitlines()
    core = membership(*(int(word) for word in beginning.split() if word.isdigit()))
    for line in lines:
        what = line.partition(" =>")[0]
        now, *words = what.split()
        found = "; ".join(written(happens(core, float(now), *words)))
        assert f"{what} => {found}".rstrip() == line


@pytest.mark.parametrize(
    "phase", [Phase.BUSY, Phase.SUSPECT, Phase.SLOW, Phase.FENCED, Phase.DRAINED]
)
def test_while_the_coordinator_stood_still_no_worker_s_time_ran_out(phase: Phase) -> None:
    core = membership(1, 0)
    core.workers[0].phase = phase
    core.workers[0].due = 10.0
    core.excuse(30.0)
    assert core.next_due() == 40.0


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
    probation = Probation(Backoff(first_seconds=0.5, longest_seconds=3.0))
    assert [probation.failed() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert probation.failures == 5


@pytest.mark.parametrize(
    ("replies", "seconds", "forgiven"), [(10, 8.0, True), (9, 1000.0, False), (1000, 7.9, False)]
)
def test_failures_are_forgiven_after_enough_replies_in_a_time_that_grows_with_them(
    replies: int, seconds: float, forgiven: bool
) -> None:
    probation = Probation(Backoff(first_seconds=0.5), healthy_replies=10, healthy_waits=4.0)
    assert [probation.failed() for _ in range(3)] == [0.5, 1.0, 2.0]
    probation.replied(replies, seconds)
    assert probation.failures == (0 if forgiven else 3)
    assert probation.failed() == (0.5 if forgiven else 4.0)


def waits_of_one_that_dies_after(replies: int, seconds_each: float) -> list[float]:
    """How long a worker is left alone that comes back at once each time."""
    core = membership(1)
    now = 0.0
    waits = []
    attempts = count(1)
    for _ in range(8):
        core.handle(Answered(0), now)
        core.handle(Joined(0), now)
        for attempt in islice(attempts, replies):
            core.schedule([Item(attempt, "update")], now)
            now += seconds_each
            core.handle(Replied(0, attempt, None, seconds_each), now)
        core.schedule([Item(0, "update")], now)
        now += seconds_each
        core.handle(Failed(0, next(attempts), "gone"), now)
        core.withdraw()
        waits.append(core.workers[0].due - now)
        now = core.workers[0].due
    return waits


def test_one_that_dies_after_its_first_item_again_and_again_is_asked_ever_less_often() -> None:
    rising = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert waits_of_one_that_dies_after(1, 0.1) == pytest.approx(rising)
    assert waits_of_one_that_dies_after(1, 60.0) == pytest.approx(rising), (
        "one slow reply makes no stretch either"
    )


def test_one_that_works_well_in_between_is_taken_back_soon() -> None:
    assert waits_of_one_that_dies_after(20, 1.0) == pytest.approx([0.5] * 8)


class Traced:
    def __str__(self) -> str:
        return "update"


def test_a_function_that_is_traced_again_keeps_what_is_known_of_its_time() -> None:
    core = membership(1, 0)
    for number in (1, 2):
        core.schedule([Item(number, Traced())], float(number))
        core.handle(Replied(0, number, None, 0.1), number + 0.1)
    assert list(core.workers[0].deadlines) == ["update"]
