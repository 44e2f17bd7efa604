"""Which fault strikes when, as numbers in, decisions out; and what a run remembers of it."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.jobs.run_logs import CHAOS_LOG, ChaosLog
from core.engine.chaos import (
    BY_SUPERVISOR,
    DEADLY,
    DEADLY_LIMIT,
    PROMPT_SECONDS,
    SPARED_ATTEMPT,
    TAKES_WORKER,
    Chaos,
    ChaosPlan,
    Fault,
    Strike,
    deadly_faults,
)
from core.ground.errors import UsageError
from tests.tables import table

EVERYBODY = range(4)
DISPATCHES = 4000


def never(_seconds: float) -> int:
    return 0


def strikes_of(plan: ChaosPlan, attempt: int = 0, count: int = DISPATCHES) -> list[Strike | None]:
    """An hour apart, so that whoever was struck is long back."""
    chaos = Chaos(plan, attempt, servers=3)
    return [
        chaos.strike(number % 4, 1, EVERYBODY, 3600.0 * number, never) for number in range(count)
    ]


def test_each_fault_strikes_as_often_as_its_probability_says() -> None:
    plan = ChaosPlan.parse(
        "kill-worker:0.1,stop-worker:0.05,cut-worker:0.2,kill-ps:0.01,kill-coordinator:0.02,"
        "drop-reply:0.15,duplicate:0.08,late:0.2,cut-ps:0.1"
    )
    assert set(plan.probabilities) == set(Fault)
    found = strikes_of(plan)
    counts = Counter(strike.fault for strike in found if strike)
    for fault, probability in plan.probabilities.items():
        spread = (DISPATCHES * probability * (1 - probability)) ** 0.5
        assert abs(counts[fault] - DISPATCHES * probability) < 5 * spread, fault
    of = {fault: [each for each in found if each and each.fault is fault] for fault in Fault}
    assert {strike.task for strike in of[Fault.KILL_PS]} == {0, 1, 2}
    assert {strike.server for strike in of[Fault.CUT_PS]} == {0, 1, 2}
    assert {strike.target for strike in of[Fault.KILL_COORDINATOR]} == {"coordinator:0"}
    for number, strike in enumerate(found):
        if strike and strike.fault not in DEADLY:
            assert (strike.task, strike.dispatch) == (number % 4, number)
            assert 0.5 <= strike.lasts_seconds <= 6.0
            assert 0.0 <= strike.delay_seconds <= PROMPT_SECONDS


@given(st.sampled_from(list(Fault)), st.integers(0, 2**64 - 1), st.integers(0, 50))
def test_the_same_seed_and_attempt_give_the_same_faults_and_others_give_others(
    fault: Fault, seed: int, attempt: int
) -> None:
    def struck(seed: int, attempt: int) -> list[Strike | None]:
        return strikes_of(ChaosPlan.parse(f"{fault}:0.5,seed:{seed}"), attempt, 128)

    assert struck(seed, attempt) == struck(seed, attempt)
    assert struck(seed, attempt) != struck(seed, attempt + 1)
    assert struck(seed, attempt) != struck(seed ^ 1, attempt)


def test_who_was_spared_before_shifts_nothing_of_what_comes_next() -> None:
    plan = ChaosPlan.parse("kill-worker:0.5")
    other = Chaos(plan)
    for _ in range(100):
        other.strike(0, SPARED_ATTEMPT, EVERYBODY, 0.0, never)
    after = [
        other.strike(number % 4, 1, EVERYBODY, 3600.0 * number, never) for number in range(100, 200)
    ]
    assert after == strikes_of(plan, count=200)[100:]


@given(
    st.sets(st.sampled_from(list(TAKES_WORKER)), min_size=1),
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 2.0)), max_size=60),
)
def test_somebody_is_always_left_who_can_go_on(
    faults: set[Fault], dispatches: list[tuple[int, float]]
) -> None:
    chaos = Chaos(ChaosPlan(dict.fromkeys(faults, 1.0 / len(faults))))
    now = 0.0
    down = dict.fromkeys(EVERYBODY, 0.0)
    for task, seconds in dispatches:
        now += seconds
        strike = chaos.strike(task, 1, EVERYBODY, now, never)
        if strike:
            if strike.fault is Fault.STOP_WORKER:
                lasts = strike.lasts_seconds
            else:
                lasts = 0.0
            down[task] = now + strike.delay_seconds + lasts
        assert any(until <= now for until in down.values())


@pytest.mark.parametrize(
    ("plan", "attempt", "live", "deaths", "strikes"),
    table("core/engine/tables", "spared"),
)
def test_the_last_live_worker_an_item_tried_often_and_a_job_that_died_often_are_spared(
    plan: str, attempt: int, live: list[int], deaths: int, strikes: bool
) -> None:
    found = Chaos(ChaosPlan.parse(plan)).strike(1, attempt, live, 0.0, lambda _: deaths)
    assert (found is not None) == strikes


@pytest.mark.parametrize("hold", [True, False])
def test_where_workers_hold_the_parameters_their_deaths_count_as_those_of_the_job(
    tmp_path: Path, hold: bool
) -> None:
    deadly = deadly_faults(workers_hold_parameters=hold)
    kill = Chaos(ChaosPlan.parse("kill-worker:1"), deadly=deadly)
    assert kill.strike(0, 1, EVERYBODY, 0.0, lambda _: DEADLY_LIMIT - 1) is not None
    assert (kill.strike(0, 1, EVERYBODY, 3600.0, lambda _: DEADLY_LIMIT) is None) == hold
    log = ChaosLog(tmp_path, deadly=deadly)
    log.injected(strike(Fault.KILL_WORKER))
    assert log.deadly(60.0) == hold


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *table("core/engine/tables", "plans").items(),
        ("hold:" + "9" * 5000, "hold: expected a number of updates"),
    ],
)
def test_a_plan_that_cannot_be_read_names_every_problem_and_what_there_is(
    text: str, expected: str
) -> None:
    with pytest.raises(UsageError, match=expected) as refused:
        ChaosPlan.parse(text)
    assert all(fault in str(refused.value) for fault in Fault)


@given(st.text(alphabet="late:0.1,sed kil-worp\n\x00é²", max_size=40))
def test_whatever_is_typed_is_a_plan_or_a_usage_error(text: str) -> None:
    try:
        plan = ChaosPlan.parse(text)
    except UsageError:
        return
    assert 0.0 <= sum(plan.probabilities.values()) <= 1.0 + 1e-9


@pytest.mark.parametrize("fault", Fault)
def test_what_only_a_supervisor_makes_good_is_refused_without_one(fault: Fault) -> None:
    plan = ChaosPlan({fault: 0.1})
    plan.refuse("train", supervised=True, goes_on=True)
    if fault not in BY_SUPERVISOR:
        plan.refuse("pi", supervised=False, goes_on=False)
        return
    with pytest.raises(UsageError, match=f"--chaos {fault} needs a supervisor"):
        plan.refuse("train", supervised=False, goes_on=True)


def test_what_ends_the_coordinator_is_only_for_jobs_that_go_on() -> None:
    with pytest.raises(UsageError, match="only train resumes"):
        ChaosPlan.parse("kill-ps:0.1").refuse("pi", supervised=True, goes_on=False)


def test_a_training_alone_is_held_at_an_update_with_or_without_faults() -> None:
    plan = ChaosPlan.parse("hold:40")
    assert (plan.holds, dict(plan.probabilities)) == ((40,), {})
    assert ChaosPlan.parse("hold:7,late:0.1,hold:0,hold:7").holds == (0, 7)
    plan.refuse("train", supervised=False, goes_on=True)
    with pytest.raises(UsageError, match="hold: only train has updates to wait at; pi has none"):
        plan.refuse("pi", supervised=True, goes_on=False)


def strike(fault: Fault) -> Strike:
    return Strike(fault, 1, 7, 0.1, 0.5)


def test_a_run_s_log_goes_on_where_a_killed_coordinator_left_it(tmp_path: Path) -> None:
    first = ChaosLog(tmp_path)
    first.injected(strike(Fault.LATE))
    first.injected(strike(Fault.KILL_PS))
    with (tmp_path / CHAOS_LOG).open("a") as stream:
        stream.write('{"time": 1, "fau')  # a disk that was full
        stream.write("\n")
    second = ChaosLog(tmp_path)
    second.injected(strike(Fault.LATE))
    assert (first.attempt, second.attempt, ChaosLog(tmp_path).attempt) == (0, 1, 2)
    assert second.describe() == {"injected": {"kill-ps": 1, "late": 2}}
    assert (second.deadly(60.0), second.deadly(0.0)) == (1, 0)
