"""Each policy under random speeds, deaths, stops and returns: nothing is lost, doubled, overlapping or stalled."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.consistency.asynchronous import Asynchronous
from cluster.consistency.policy import Grant, Policy, Speeds, WholeSteps, largest_subtree
from cluster.consistency.ssp import BoundedStaleness
from cluster.consistency.synchronous import Synchronous
from tests.consistency.simulation import Fault, Seen, Simulation

UPDATES = range(7, 31)
EVERYBODY = frozenset({0, 1, 2, 3})


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[int, float], list[Fault]]:
    """Seconds a micro-batch of up to six workers, and faults; worker 0 lives through all of them."""
    count = draw(st.integers(1, 6))
    seconds = {task: draw(st.sampled_from([0.2, 0.5, 1.0, 1.1, 2.0, 8.0])) for task in range(count)}
    if count == 1:
        return seconds, []
    fault = st.builds(
        Fault, st.floats(0.0, 150.0), st.sampled_from(["kill", "stop", "go on", "join"]), st.integers(1, count - 1)
    )
    return seconds, draw(st.lists(fault, max_size=12))


def every_update_once(seen: Seen) -> None:
    assert sorted(seen.complete) == list(UPDATES)


def under(policy: Policy, cluster: tuple[dict[int, float], list[Fault]]) -> Seen:
    seen = Simulation(policy, *cluster).run(UPDATES)
    every_update_once(seen)
    return seen


@settings(deadline=None)
@given(cluster=clusters(), slots=st.integers(1, 8))
def test_asynchronous_grants_whole_updates_once_each(cluster: tuple[dict[int, float], list[Fault]], slots: int) -> None:
    seen = under(Asynchronous(slots, Speeds()), cluster)
    assert [grant for _, grant, _ in seen.drawn] == [Grant(update, 0, slots) for update in UPDATES]


@settings(deadline=None)
@given(cluster=clusters(), bound=st.integers(0, 3))
def test_nobody_is_further_ahead_of_the_slowest_than_the_bound_in_clocks_of_the_workers_there_are(
    cluster: tuple[dict[int, float], list[Fault]], bound: int
) -> None:
    policy = BoundedStaleness(1, Speeds(), bound)
    simulation = Simulation(policy, *cluster)
    draw = policy.draw

    def watched(task: int, live: frozenset[int], now: float) -> Grant | None:
        grant = draw(task, live, now)
        if grant is not None:
            workers = len(live)
            clock = (grant.update - UPDATES.start) // workers
            before = range(UPDATES.start, UPDATES.start + (clock - bound) * workers)
            assert set(before) <= set(simulation.seen.complete)
        return grant

    policy.draw = watched  # type: ignore[method-assign]
    simulation.run(UPDATES)
    every_update_once(simulation.seen)


def test_a_bound_lets_others_go_on_by_so_much_and_no_more() -> None:
    policy = BoundedStaleness(1, Speeds(), bound=1)
    policy.begin(range(10))
    two = frozenset({0, 1})
    drawn = [policy.draw(task % 2, two, 0.0) for task in range(5)]
    assert drawn == [Grant(0, 0, 1), Grant(1, 0, 1), Grant(2, 0, 1), Grant(3, 0, 1), None]
    policy.replied(Grant(1, 0, 1), 1, 1.0)
    assert policy.draw(1, two, 1.0) is None, "update 0 is still under way"
    policy.replied(Grant(0, 0, 1), 0, 1.0)
    assert policy.draw(1, two, 1.0) == Grant(4, 0, 1)


@settings(deadline=None, max_examples=200)
@given(cluster=clusters(), slots=st.integers(1, 16), quorum=st.integers(1, 16) | st.none(), backups=st.integers(0, 4))
def test_a_step_is_cut_into_aligned_parts_and_nothing_starts_before_the_one_before_is_complete(
    cluster: tuple[dict[int, float], list[Fault]], slots: int, quorum: int | None, backups: int
) -> None:
    policy = Synchronous(slots, Speeds(), quorum, backups)
    seen = under(policy, cluster)
    assert seen.complete == list(UPDATES)
    assert seen.most_backups <= backups
    parts: dict[int, list[Grant]] = defaultdict(list)
    for _, grant, again in seen.drawn:
        assert grant.slots == largest_subtree(grant.first, slots, grant.slots)
        if not again:
            assert grant.update >= max(parts, default=0)
            parts[grant.update].append(grant)
    for step in UPDATES:
        granted = [place for grant in parts[step] for place in range(grant.first, grant.first + grant.slots)]
        assert len(granted) == len(set(granted))
        assert len(granted) >= min(quorum or slots, slots)
        if quorum is None:
            assert sorted(granted) == list(range(slots))
    counted = policy.counted(UPDATES[-1])
    assert len(counted) >= min(quorum or slots, slots)
    assert counted == sorted(set(counted))


@settings(deadline=None)
@given(cluster=clusters(), slots=st.integers(1, 8))
def test_whole_steps_follow_one_another(cluster: tuple[dict[int, float], list[Fault]], slots: int) -> None:
    seen = under(WholeSteps(slots, Speeds()), cluster)
    assert seen.complete == list(UPDATES)
    assert [grant for _, grant, _ in seen.drawn] == [Grant(update, 0, slots) for update in UPDATES]


def test_a_step_waits_for_every_part_and_says_what_it_consists_of() -> None:
    policy = Synchronous(4, Speeds())
    policy.begin(range(5, 7))
    parts = [policy.draw(task, EVERYBODY, 0.0) for task in range(4)]
    assert parts == [Grant(5, place, 1) for place in range(4)]
    told = [policy.replied(Grant(5, place, 1), place, 1.0) for place in (3, 0, 1, 2)]
    assert told == [False, False, False, True]
    assert policy.counted(5) == [0, 1, 2, 3]
    assert policy.draw(0, EVERYBODY, 1.0) == Grant(6, 0, 1)


def test_a_quorum_ends_the_step_and_takes_back_what_is_still_under_way() -> None:
    policy = Synchronous(4, Speeds(), quorum=3)
    policy.begin(range(2))
    for task in range(4):
        policy.draw(task, EVERYBODY, 0.0)
    told = [policy.replied(Grant(0, place, 1), place, 1.0) for place in (3, 0, 2)]
    assert told == [False, False, True]
    assert policy.withdrawn() == [Grant(0, 1, 1)]
    assert policy.withdrawn() == []
    assert policy.counted(0) == [0, 2, 3]
    assert not policy.replied(Grant(0, 1, 1), 1, 9.0), "of a step that is over"


def test_a_part_that_takes_too_long_is_done_a_second_time_by_whoever_has_nothing_else() -> None:
    speeds = Speeds()
    for task in range(4):
        for _ in range(3):
            speeds.observe(task, 1, 1.0)
    policy = Synchronous(4, speeds, backup_workers=1)
    policy.begin(range(2))
    for task in range(4):
        policy.draw(task, EVERYBODY, 0.0)
    policy.replied(Grant(0, 0, 1), 0, 1.0)
    policy.replied(Grant(0, 1, 1), 1, 1.0)
    assert policy.draw(0, EVERYBODY, 1.2) is None, "not late yet"
    assert policy.draw(0, EVERYBODY, 2.0) == Grant(0, 2, 1)
    assert policy.draw(1, EVERYBODY, 2.0) is None, "one backup worker is all there is"


@pytest.mark.parametrize("slots", [4, 16])
def test_a_fast_worker_that_no_longer_answers_does_not_keep_slow_ones_from_working(slots: int) -> None:
    """It stays in the cluster until it is fenced; whoever is passed over for it must not wait for that."""
    seconds = {0: 8.0, 1: 1.0}
    seen = Simulation(Synchronous(slots, Speeds({0: 1.0, 1: 8.0})), seconds, [Fault(40.0, "stop", 1)]).run(range(20))
    assert seen.complete == list(range(20))


def ideal(seconds: dict[int, float], micro_batches: int) -> float:
    """Seconds that the work takes if nobody ever waits."""
    return micro_batches / sum(1.0 / each for each in seconds.values())


FOUR_TIMES_SLOWER = {0: 1.0, 1: 4.0, 2: 1.0, 3: 1.0}


def test_asynchronous_a_worker_four_times_slower_costs_what_it_lacks_and_no_more() -> None:
    seen = Simulation(Asynchronous(4, Speeds()), FOUR_TIMES_SLOWER).run(range(200))
    assert seen.seconds <= 1.15 * ideal(FOUR_TIMES_SLOWER, 4 * 200)
    assert seen.slots[1] == pytest.approx(800 / 13, rel=0.2)


def test_synchronous_a_worker_four_times_slower_costs_what_it_lacks_and_no_more() -> None:
    seen = Simulation(Synchronous(16, Speeds()), FOUR_TIMES_SLOWER).run(range(100))
    assert seen.seconds <= 1.15 * ideal(FOUR_TIMES_SLOWER, 16 * 100)
    assert seen.slots[1] == pytest.approx(1600 / 13, rel=0.5)


def test_a_slow_worker_gets_no_second_part_just_before_the_others_have_done_theirs() -> None:
    policy = Synchronous(16, Speeds({task: 1.0 / each for task, each in FOUR_TIMES_SLOWER.items()}))
    policy.begin(range(1))
    granted = [policy.draw(task, EVERYBODY, 0.0) for task in (0, 2, 3, 1)]
    assert granted == [Grant(0, 0, 4), Grant(0, 4, 4), Grant(0, 8, 4), Grant(0, 12, 1)]
    policy.replied(Grant(0, 12, 1), 1, 3.9)
    assert policy.draw(1, EVERYBODY, 3.9) is None, "three others need 0.1 s for what they have, 1 s for the rest"


def test_a_worker_that_was_passed_over_is_tried_again_and_gets_its_share_when_it_is_faster() -> None:
    policy = Synchronous(4, Speeds())
    slow = {0: 1.0, 1: 1.0, 2: 40.0}
    assert Simulation(policy, slow).run(range(100)).slots[2] < 20
    again = Simulation(policy, dict.fromkeys(slow, 1.0)).run(range(100, 1200))
    assert again.slots[2] > 4 * 1100 / 3 / 2


def test_equal_workers_share_a_step_as_far_as_it_can_be_cut() -> None:
    seen = Simulation(Synchronous(16, Speeds()), dict.fromkeys(range(4), 1.0)).run(range(50))
    assert seen.seconds <= 1.15 * 4 * 50
