"""Each policy under random speeds, deaths, stops and returns.

Nothing is lost, doubled, overlapping or stalled.
"""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.consistency.asynchronous import Asynchronous
from core.consistency.policy import Grant, Policy, Speeds, WholeSteps, largest_subtree
from core.consistency.ssp import BoundedStaleness
from core.consistency.synchronous import Synchronous
from tests.core.consistency.simulation import Fault, Seen, Simulation

UPDATES = range(7, 31)
EVERYBODY = frozenset({0, 1, 2, 3})


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[int, float], list[Fault]]:
    """Seconds a slot of up to six workers, and faults.

    Worker 0 lives through all of them.
    """
    count = draw(st.integers(1, 6))
    seconds = {task: draw(st.sampled_from([0.2, 0.5, 1.0, 1.1, 2.0, 8.0])) for task in range(count)}
    if count == 1:
        return seconds, []
    fault = st.builds(
        Fault,
        st.floats(0.0, 150.0),
        st.sampled_from(["kill", "stop", "go on", "join"]),
        st.integers(1, count - 1),
    )
    return seconds, draw(st.lists(fault, max_size=12))


Cluster = tuple[dict[int, float], list[Fault]]


def under(policy: Policy, cluster: Cluster) -> Seen:
    seen = Simulation(policy, *cluster).run(UPDATES)
    assert sorted(seen.complete) == list(UPDATES)
    return seen


@given(
    cluster=clusters(), slots=st.integers(1, 8), kind=st.sampled_from([Asynchronous, WholeSteps])
)
def test_whole_updates_are_granted_once_each(
    cluster: Cluster, slots: int, kind: type[Asynchronous] | type[WholeSteps]
) -> None:
    seen = under(kind(slots, Speeds()), cluster)
    assert [grant for _, grant, _ in seen.drawn] == [Grant(update, 0, slots) for update in UPDATES]
    if kind is WholeSteps:
        assert seen.complete == list(UPDATES)


class Watched(BoundedStaleness):
    """Checks that no grant is further ahead than the bound."""

    complete = frozenset[int]()

    def draw(self, task: int, live: frozenset[int], now: float) -> Grant | None:
        grant = super().draw(task, live, now)
        if grant is not None:
            workers = len(live)
            clock = (grant.update - UPDATES.start) // workers
            before = range(UPDATES.start, UPDATES.start + (clock - self._bound) * workers)
            assert self.complete.issuperset(before)
        return grant

    def replied(self, grant: Grant, task: int, seconds: float) -> bool:
        done = super().replied(grant, task, seconds)
        if done:
            self.complete = self.complete | {grant.update}
        return done


@given(cluster=clusters(), bound=st.integers(0, 3))
def test_nobody_is_further_ahead_of_the_slowest_than_the_bound_in_clocks_of_the_workers_there_are(
    cluster: Cluster, bound: int
) -> None:
    under(Watched(1, Speeds(), bound), cluster)


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


@settings(max_examples=200)
@given(
    cluster=clusters(),
    slots=st.integers(1, 16),
    quorum=st.integers(1, 16) | st.none(),
    backups=st.integers(0, 4),
)
def test_a_step_is_cut_into_aligned_parts_and_nothing_starts_before_the_one_before_is_complete(
    cluster: Cluster, slots: int, quorum: int | None, backups: int
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
        granted = [
            place
            for grant in parts[step]
            for place in range(grant.first, grant.first + grant.slots)
        ]
        assert len(granted) == len(set(granted))
        assert len(granted) >= min(quorum or slots, slots)
        if quorum is None:
            assert sorted(granted) == list(range(slots))
    counted = policy.counted(UPDATES[-1])
    assert len(counted) >= min(quorum or slots, slots)
    assert counted == sorted(set(counted))


def known(*seconds: float) -> Speeds:
    """Make speeds of workers that took so long for a slot."""
    speeds = Speeds()
    for task, each in enumerate(seconds):
        for _ in range(3):
            speeds.observe(task, 1, each)
    return speeds


def granted(policy: Synchronous, *replied: int) -> list[bool]:
    """Grant a slot of the first step to each of four workers; what replies are told."""
    policy.begin(range(2))
    parts = [policy.draw(task, EVERYBODY, 0.0) for task in range(4)]
    assert parts == [Grant(0, place, 1) for place in range(4)]
    return [policy.replied(Grant(0, task, 1), task, 1.0) for task in replied]


def all_granted(policy: Synchronous) -> Synchronous:
    """A slot of the first step is granted to each of four workers; two have replied."""
    granted(policy, 0, 1)
    return policy


def test_a_step_waits_for_every_part_and_says_what_it_consists_of() -> None:
    policy = Synchronous(4, Speeds())
    assert granted(policy, 3, 0, 1, 2) == [False, False, False, True]
    assert policy.counted(0) == [0, 1, 2, 3]
    assert policy.draw(0, EVERYBODY, 1.0) == Grant(1, 0, 1)


def test_a_quorum_ends_the_step_and_takes_back_what_is_still_under_way() -> None:
    policy = Synchronous(4, Speeds(), quorum=3)
    assert granted(policy, 3, 0, 2) == [False, False, True]
    assert [policy.withdrawn(), policy.withdrawn()] == [[Grant(0, 1, 1)], []]
    assert policy.counted(0) == [0, 2, 3]
    assert not policy.replied(Grant(0, 1, 1), 1, 9.0), "of a step that is over"


def test_a_part_that_takes_too_long_is_done_a_second_time_by_whoever_has_nothing_else() -> None:
    policy = all_granted(Synchronous(4, known(1.0, 1.0, 1.0, 1.0), backup_workers=1))
    assert policy.draw(0, EVERYBODY, 1.2) is None, "not late yet"
    assert policy.draw(0, EVERYBODY, 2.0) == Grant(0, 2, 1)
    assert policy.draw(1, EVERYBODY, 2.0) is None, "one backup worker is all there is"


@pytest.mark.parametrize(
    ("asking", "repeated"), [((2, 0, 1), [3, 2, None]), ((0, 1, 3), [2, 3, None])]
)
def test_each_late_part_is_repeated_once_and_never_by_the_worker_that_is_late(
    asking: tuple[int, ...], repeated: list[int | None]
) -> None:
    policy = all_granted(Synchronous(4, known(1.0, 1.0, 1.0, 1.0), backup_workers=3))
    found = [policy.draw(task, EVERYBODY, 2.0) for task in asking]
    assert found == [None if first is None else Grant(0, first, 1) for first in repeated]


def test_a_part_that_is_not_late_is_passed_for_one_that_is() -> None:
    policy = all_granted(Synchronous(4, known(1.0, 1.0, 1.2, 1.0), backup_workers=1))
    assert policy.draw(0, EVERYBODY, 1.7) == Grant(0, 3, 1)


def test_a_reply_of_an_earlier_step_changes_what_is_late() -> None:
    policy = all_granted(Synchronous(4, known(1.0, 1.0, 1.0, 1.0), backup_workers=1))
    assert policy.draw(0, EVERYBODY, 1.0) is None
    for _ in range(8):
        policy.replied(Grant(-1, 0, 1), 2, 0.1)
    assert policy.draw(0, EVERYBODY, 1.0) == Grant(0, 2, 1)


def test_a_new_stretch_forgets_what_the_last_one_withdrew() -> None:
    policy = all_granted(Synchronous(4, Speeds(), quorum=2))
    policy.begin(range(5, 7))
    assert policy.withdrawn() == []


def test_a_slow_worker_gets_a_part_of_an_idle_step_when_it_asks_twice() -> None:
    live = frozenset({0, 1, 2})
    policy = Synchronous(4, Speeds({0: 1.0, 1: 100.0, 2: 100.0}))
    policy.begin(range(1))
    assert policy.draw(0, live, 0.0) is None
    granted = policy.draw(1, live, 0.0)
    assert granted == Grant(0, 0, 2)
    policy.replied(granted, 1, 0.02)
    assert policy.draw(0, live, 0.02) is None, "a faster one has worked since it asked"
    assert policy.draw(0, live, 0.02) == Grant(0, 2, 1)


@pytest.mark.parametrize(("updates", "grant"), [(2, None), (6, Grant(1, 0, 4))])
def test_the_last_updates_do_not_go_to_a_worker_that_all_would_wait_for(
    updates: int, grant: Grant | None
) -> None:
    policy = Asynchronous(4, Speeds({0: 8.0, 1: 1.0}))
    policy.begin(range(updates))
    policy.draw(0, frozenset({0, 1}), 0.0)
    assert policy.draw(1, frozenset({0, 1}), 0.0) == grant


@pytest.mark.parametrize("slots", [4, 16])
def test_a_fast_worker_that_no_longer_answers_does_not_keep_slow_ones_from_working(
    slots: int,
) -> None:
    """It stays in the cluster until it is fenced.

    Whoever is passed over for it must not wait for that.
    """
    seconds = {0: 8.0, 1: 1.0}
    seen = Simulation(
        Synchronous(slots, Speeds({0: 1.0, 1: 8.0})), seconds, [Fault(40.0, "stop", 1)]
    ).run(range(20))
    assert seen.complete == list(range(20))


def ideal(seconds: dict[int, float], slots: int) -> float:
    """Seconds that the work takes if nobody ever waits."""
    return slots / sum(1.0 / each for each in seconds.values())


FOUR_TIMES_SLOWER = {0: 1.0, 1: 4.0, 2: 1.0, 3: 1.0}


@pytest.mark.parametrize(
    ("policy", "slots", "updates", "tolerance"),
    [(Asynchronous, 4, 200, 0.2), (Synchronous, 16, 100, 0.5)],
)
def test_a_worker_four_times_slower_costs_what_it_lacks_and_no_more(
    policy: type[Asynchronous] | type[Synchronous], slots: int, updates: int, tolerance: float
) -> None:
    seen = Simulation(policy(slots, Speeds()), FOUR_TIMES_SLOWER).run(range(updates))
    assert seen.seconds <= 1.15 * ideal(FOUR_TIMES_SLOWER, slots * updates)
    assert seen.slots[1] == pytest.approx(slots * updates / 13, rel=tolerance)


def test_a_slow_worker_gets_no_second_part_just_before_the_others_have_done_theirs() -> None:
    policy = Synchronous(16, Speeds({task: 1.0 / each for task, each in FOUR_TIMES_SLOWER.items()}))
    policy.begin(range(1))
    granted = [policy.draw(task, EVERYBODY, 0.0) for task in (0, 2, 3, 1)]
    assert granted == [Grant(0, 0, 4), Grant(0, 4, 4), Grant(0, 8, 4), Grant(0, 12, 1)]
    policy.replied(Grant(0, 12, 1), 1, 3.9)
    assert policy.draw(1, EVERYBODY, 3.9) is None, (
        "three others need 0.1 s for what they have, 1 s for the rest"
    )


def test_a_worker_that_was_passed_over_is_tried_again_and_gets_its_share_when_it_is_faster() -> (
    None
):
    policy = Synchronous(4, Speeds())
    slow = {0: 1.0, 1: 1.0, 2: 40.0}
    assert Simulation(policy, slow).run(range(100)).slots[2] < 20
    again = Simulation(policy, dict.fromkeys(slow, 1.0)).run(range(100, 1200))
    assert again.slots[2] > 4 * 1100 / 3 / 2


def test_equal_workers_share_a_step_as_far_as_it_can_be_cut() -> None:
    seen = Simulation(Synchronous(16, Speeds()), dict.fromkeys(range(4), 1.0)).run(range(50))
    assert seen.seconds <= 1.15 * 4 * 50
