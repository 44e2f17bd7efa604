"""What the policies remember to be quick changes none of their decisions."""

from collections.abc import Callable, Set

from hypothesis import given, settings
from hypothesis import strategies as st

from core.consistency import Grant, Speeds
from core.consistency.asynchronous import Asynchronous
from core.consistency.synchronous import Synchronous
from tests.core.consistency.simulation import Happening, faults, play

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
        self._backups = sum(part.backup is not None for part in self._parts.values())
        return super().draw(task, live, now)


@settings(max_examples=200)
@given(
    st.lists(st.floats(0.05, 4.0), min_size=1, max_size=8),
    st.lists(faults(7, 60.0), max_size=6),
    st.integers(1, 24),
    st.integers(1, 24),
    st.integers(0, 2),
    CALIBRATION,
)
def test_synchronous_decides_as_one_that_remembers_nothing(
    seconds: list[float],
    befallen: list[Happening],
    slots: int,
    quorum: int,
    backups: int,
    calibration: dict[int, float],
) -> None:
    befallen = [fault for fault in befallen if fault.task < len(seconds)]
    quorum = min(quorum, slots)
    product = Synchronous(slots, Speeds(calibration), quorum, backups)
    forgetful = ForgetfulSynchronous(slots, ForgetfulSpeeds(calibration), quorum, backups)
    assert play(product, UPDATES, seconds, befallen) == play(forgetful, UPDATES, seconds, befallen)


@settings(max_examples=50)
@given(st.lists(st.floats(0.05, 4.0), min_size=1, max_size=8), st.integers(1, 4), CALIBRATION)
def test_asynchronous_decides_as_one_that_remembers_nothing(
    seconds: list[float], slots: int, calibration: dict[int, float]
) -> None:
    product = Asynchronous(slots, Speeds(calibration))
    forgetful = Asynchronous(slots, ForgetfulSpeeds(calibration))
    assert play(product, UPDATES, seconds) == play(forgetful, UPDATES, seconds)
