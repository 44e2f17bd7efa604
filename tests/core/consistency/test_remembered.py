"""What the policies remember to be quick changes none of their decisions."""

from collections.abc import Callable, Sequence, Set

from hypothesis import given, settings
from hypothesis import strategies as st

from core.consistency import Grant, Policy, Speeds
from core.consistency.asynchronous import Asynchronous
from core.consistency.synchronous import Synchronous
from tests.core.consistency.simulation import Fault, Seen, Simulation

UPDATES = range(40)
CALIBRATION = st.dictionaries(st.integers(0, 7), st.floats(0.1, 9.0))


class ForgetfulSpeeds(Speeds):
    """Speeds that look at every measurement again whenever they are asked."""

    def speed_of(self, task: int) -> float:
        self._unit = None
        return super().speed_of(task)

    def share(self, task: int, live: Set[int]) -> float:
        self._total = None
        return super().share(task, live)

    def worth_while(
        self, task: int, slots: int, remaining: int, busy: Callable[[], float], live: Set[int]
    ) -> bool:
        self._fastest = None
        return super().worth_while(task, slots, remaining, busy, live)


class ForgetfulSynchronous(Synchronous):
    """A policy that looks at every part and every worker again whenever it is asked."""

    def draw(self, task: int, live: frozenset[int], now: float) -> Grant | None:
        self._first_late = None
        self._owed_now = (frozenset(), set())
        self._backups = sum(part.backups for part in self._parts.values())
        return super().draw(task, live, now)


def played(policy: Policy, seconds: Sequence[float], faults: Sequence[Fault]) -> Seen:
    return Simulation(policy, dict(enumerate(seconds)), faults).run(UPDATES)


def faults_of(workers: int) -> st.SearchStrategy[list[Fault]]:
    """None of worker 0, so that somebody is always there."""
    what = st.sampled_from(["kill", "stop", "go on", "join"])
    return st.lists(
        st.builds(Fault, st.floats(0.0, 60.0), what, st.integers(1, workers)), max_size=6
    )


@settings(max_examples=200)
@given(
    st.lists(st.floats(0.05, 4.0), min_size=1, max_size=8).flatmap(
        lambda seconds: st.tuples(st.just(seconds), faults_of(max(1, len(seconds) - 1)))
    ),
    st.integers(1, 24),
    st.integers(1, 24),
    st.integers(0, 2),
    CALIBRATION,
)
def test_synchronous_decides_as_one_that_remembers_nothing(
    drawn: tuple[list[float], list[Fault]],
    slots: int,
    quorum: int,
    backups: int,
    calibration: dict[int, float],
) -> None:
    seconds, faults = drawn
    faults = [fault for fault in faults if fault.task < len(seconds)]
    quorum = min(quorum, slots)
    product = Synchronous(slots, Speeds(calibration), quorum, backups)
    forgetful = ForgetfulSynchronous(slots, ForgetfulSpeeds(calibration), quorum, backups)
    assert played(product, seconds, faults) == played(forgetful, seconds, faults)


@settings(max_examples=50)
@given(st.lists(st.floats(0.05, 4.0), min_size=1, max_size=8), st.integers(1, 4), CALIBRATION)
def test_asynchronous_decides_as_one_that_remembers_nothing(
    seconds: list[float], slots: int, calibration: dict[int, float]
) -> None:
    product = Asynchronous(slots, Speeds(calibration))
    forgetful = Asynchronous(slots, ForgetfulSpeeds(calibration))
    assert played(product, seconds, []) == played(forgetful, seconds, [])
