"""Each policy under random speeds, deaths, stops and returns.

Nothing is lost, doubled, overlapping or stalled.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.consistency import Grant, Policy, Speeds, WholeSteps, largest_subtree
from core.consistency.asynchronous import Asynchronous
from core.consistency.ssp import BoundedStaleness
from core.consistency.synchronous import Synchronous
from tests.core.consistency.simulation import PATIENCE_SECONDS, Happening, Seen, faults, play
from tests.tables import table

UPDATES = range(7, 31)
EVERYBODY = frozenset({0, 1, 2, 3})


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[float], list[Happening]]:
    """Seconds a slot of up to six workers, and faults.

    Worker 0 lives through all of them.
    """
    seconds = draw(
        st.lists(st.sampled_from([0.2, 0.5, 1.0, 1.1, 2.0, 8.0]), min_size=1, max_size=6)
    )
    if len(seconds) == 1:
        return seconds, []
    return seconds, draw(st.lists(faults(len(seconds) - 1, 150.0), max_size=12))


Cluster = tuple[list[float], list[Happening]]


def under(policy: Policy, cluster: Cluster) -> Seen:
    seen = play(policy, UPDATES, *cluster)
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
        assert list(seen.complete) == list(UPDATES)


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

    def replied(self, grant: Grant, task: int, seconds: float, done: int | None = None) -> range:
        complete = super().replied(grant, task, seconds, done)
        self.complete = self.complete.union(complete)
        return complete


@given(cluster=clusters(), bound=st.integers(0, 3))
def test_nobody_is_further_ahead_of_the_slowest_than_the_bound_in_clocks_of_the_workers_there_are(
    cluster: Cluster, bound: int
) -> None:
    under(Watched(1, Speeds(), bound), cluster)


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
    assert list(seen.complete) == list(UPDATES)
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


ROW = range(7, 107)


def in_rows(slots: int, backups: int = 1) -> Synchronous:
    """A policy whose workers have a function for several steps."""
    policy = Synchronous(slots, Speeds(), None, backups)
    policy.most_updates = 16
    return policy


@settings(max_examples=100)
@given(
    seconds=st.lists(st.sampled_from([0.002, 0.005, 0.01, 0.08, 1.0]), min_size=1, max_size=6),
    befallen=st.lists(faults(5, 6.0), max_size=8),
    slots=st.integers(1, 16),
    backups=st.integers(0, 4),
)
def test_steps_in_a_row_end_in_order_whoever_dies_in_one(
    seconds: list[float], befallen: list[Happening], slots: int, backups: int
) -> None:
    befallen = [fault for fault in befallen if fault.task < len(seconds)]
    seen = play(in_rows(slots, backups), ROW, seconds, befallen)
    assert list(seen.complete) == list(ROW)
    assert seen.most_backups <= backups


@pytest.mark.parametrize(
    ("workers", "slots", "idle"), [(8, 8, 0.05), (6, 32, 0.2), (12, 32, 0.2), (3, 32, 0.1)]
)
def test_workers_that_are_as_fast_do_several_steps_a_call_and_wait_for_no_alignment(
    workers: int, slots: int, idle: float
) -> None:
    seen = play(in_rows(slots), range(1000), [0.002] * workers)
    assert seen.seconds <= 1000 * slots * 0.002 / workers / (1 - idle)
    assert sum(seen.slots.values()) == 1000 * slots, "nothing is computed twice"
    assert len(seen.drawn) < 1000 * workers / 8


def test_a_worker_that_ends_keeps_the_others_of_a_row_no_longer_than_their_patience() -> None:
    seen = play(in_rows(8), range(1000), [0.01] * 8, [Happening(5.0, 3, "kill")])
    without = 5.0 + 500 * 2 * 0.01  # one of the seven that are left computes two slots
    assert seen.seconds <= without + 2 * PATIENCE_SECONDS + 0.5


CASES = table("core/consistency/policies")
POLICIES: Mapping[str, Callable[..., Any]] = {
    kind.__name__: kind for kind in (Asynchronous, BoundedStaleness, Synchronous)
}


def policy_of(case: dict[str, Any]) -> Any:
    """The policy of a case, with workers that took so many `seconds` for a slot."""
    speeds = Speeds(case.get("calibrated", {}))
    for task, seconds in enumerate(case.get("seconds", ())):
        for _ in range(3):
            speeds.observe(task, 1, seconds)
    options = {name: case[name] for name in ("quorum", "backup_workers", "bound") if name in case}
    policy = POLICIES[case["policy"]](case["slots"], speeds, **options)
    if "granted" in case:
        policy.begin(range(2))
        for task in range(4):
            assert policy.draw(task, EVERYBODY, 0.0) == Grant(0, task, 1)
        for task in case["granted"]:
            policy.replied(Grant(0, task, 1), task, 1.0)
    return policy


def happens(policy: Any, live: frozenset[int], verb: str, *words: str) -> str:
    """Do what a line says; what follows."""
    numbers = [int(word) for word in words if "." not in word]
    match verb:
        case "draw":
            grants = [policy.draw(numbers[0], live, float(words[1]))]
        case "replied":
            return str(bool(policy.replied(Grant(*numbers[1:]), numbers[0], float(words[1]))))
        case "withdrawn":
            grants = policy.withdrawn()
        case "counted":
            return " ".join(map(str, policy.counted(*numbers)))
        case _:
            grants = policy.begin(range(*numbers)) or []
    written = [f"{each.update} {each.first} {each.slots}" for each in grants if each]
    return "; ".join(written) or "none"


@pytest.mark.parametrize("name", CASES)
def test_what_follows(name: str) -> None:
    case = CASES[name]
    policy = policy_of(case)
    for line in case["lines"].splitlines():
        what, _, expected = line.partition(" => ")
        found = happens(policy, frozenset(range(case.get("live", 4))), *what.split())
        assert not expected or found == expected, line


@pytest.mark.parametrize("slots", [4, 16])
def test_a_fast_worker_that_no_longer_answers_does_not_keep_slow_ones_from_working(
    slots: int,
) -> None:
    """It stays in the cluster until it is fenced.

    Whoever is passed over for it must not wait for that.
    """
    policy = Synchronous(slots, Speeds({0: 1.0, 1: 8.0}))
    seen = play(policy, range(20), [8.0, 1.0], [Happening(40.0, 1, "stop")])
    assert list(seen.complete) == list(range(20))


@pytest.mark.parametrize(
    ("policy", "slots", "updates", "slow", "tolerance"),
    [
        (Asynchronous, 4, 200, 4.0, 0.2),
        (Synchronous, 16, 100, 4.0, 0.5),
        (Synchronous, 16, 50, 1.0, 0.5),
    ],
)
def test_a_worker_that_is_slower_costs_what_it_lacks_and_no_more(
    policy: type[Asynchronous] | type[Synchronous],
    slots: int,
    updates: int,
    slow: float,
    tolerance: float,
) -> None:
    seen = play(policy(slots, Speeds()), range(updates), [1.0, slow, 1.0, 1.0])
    expected = slots * updates / (3.0 + 1.0 / slow)
    assert seen.seconds <= 1.15 * expected, "as long as it takes if nobody ever waits"
    assert seen.slots[1] == pytest.approx(expected / slow, rel=tolerance)


def test_speeds_that_differ_by_less_than_a_seventh_make_a_part_a_worker() -> None:
    seen = play(Synchronous(32, Speeds()), range(20), [1.0, 1.2])
    assert {grant.slots for _, grant, _ in seen.drawn[-8:]} == {16}


def test_a_worker_that_was_passed_over_is_tried_again_and_gets_its_share_when_it_is_faster() -> (
    None
):
    policy = Synchronous(4, Speeds())
    assert play(policy, range(100), [1.0, 1.0, 40.0]).slots[2] < 20
    again = play(policy, range(100, 1200), [1.0, 1.0, 1.0])
    assert again.slots[2] > 4 * 1100 / 3 / 2
