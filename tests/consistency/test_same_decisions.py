"""What the policies remember to be quick changes none of their decisions, and they stay quick with many workers."""

import time
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.consistency.asynchronous import Asynchronous
from cluster.consistency.policy import Grant, Policy, Speeds
from cluster.consistency.synchronous import Synchronous
from tests.consistency.plain_policies import PlainAsynchronous, PlainSpeeds, PlainSynchronous
from tests.consistency.simulation import Fault, Seen, Simulation

UPDATES = range(40)


def played(policy: Policy, seconds: Sequence[float], faults: Sequence[Fault]) -> Seen:
    return Simulation(policy, dict(enumerate(seconds)), faults).run(UPDATES)


def faults_of(workers: int) -> st.SearchStrategy[list[Fault]]:
    """None of worker 0, so that somebody is always there."""
    what = st.sampled_from(["kill", "stop", "go on", "join"])
    return st.lists(st.builds(Fault, st.floats(0.0, 60.0), what, st.integers(1, workers)), max_size=6)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.floats(0.05, 4.0), min_size=1, max_size=8).flatmap(
        lambda seconds: st.tuples(st.just(seconds), faults_of(max(1, len(seconds) - 1)))
    ),
    st.integers(1, 24), st.integers(1, 24), st.integers(0, 2),
    st.dictionaries(st.integers(0, 7), st.floats(0.1, 9.0)),
)  # fmt: skip
def test_synchronous_grants_and_ends_as_its_definition_does(
    drawn: tuple[list[float], list[Fault]], slots: int, quorum: int, backups: int, calibration: dict[int, float]
) -> None:
    seconds, faults = drawn
    faults = [fault for fault in faults if fault.task < len(seconds)]
    product = Synchronous(slots, Speeds(calibration), min(quorum, slots), backups)
    definition = PlainSynchronous(slots, PlainSpeeds(calibration), min(quorum, slots), backups)
    assert played(product, seconds, faults) == played(definition, seconds, faults)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(0.05, 4.0), min_size=1, max_size=8), st.integers(1, 4),
    st.dictionaries(st.integers(0, 7), st.floats(0.1, 9.0)),
)  # fmt: skip
def test_asynchronous_grants_and_ends_as_its_definition_does(
    seconds: list[float], slots: int, calibration: dict[int, float]
) -> None:
    product, definition = (
        Asynchronous(slots, Speeds(calibration)), PlainAsynchronous(slots, PlainSpeeds(calibration))
    )  # fmt: skip
    assert played(product, seconds, []) == played(definition, seconds, [])


def test_a_step_costs_little_more_for_each_worker_more() -> None:
    """As the dispatcher asks: everybody idle, after each reply. It grew with the third power of the workers."""
    few, many = _cpu_of_a_step(16), _cpu_of_a_step(128)
    assert many < 8 * 10 * few, "eight times the workers, and at worst their square; it was 330 times"


def _cpu_of_a_step(workers: int, steps: int = 12) -> float:
    policy = Synchronous(64, Speeds())
    policy.begin(range(steps))
    live, idle = frozenset(range(workers)), list(range(workers))
    busy: list[tuple[float, int, Grant, float]] = []
    now = cpu = 0.0
    while not policy.exhausted():
        begin = time.process_time()
        for task in list(idle):
            grant = policy.draw(task, live, now)
            if grant is not None:
                idle.remove(task)
                busy.append((now + grant.slots * (1.0 + task / 1000), task, grant, now))
        cpu += time.process_time() - begin
        busy.sort(key=lambda one: one[:2])
        now, task, grant, since = busy.pop(0)
        begin = time.process_time()
        policy.replied(grant, task, now - since)
        cpu += time.process_time() - begin
        idle.append(task)
    return cpu / steps
