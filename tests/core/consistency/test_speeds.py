"""How fast a worker counts as, and when it is passed over."""

import pytest

from core.consistency import Grant, Speeds
from core.consistency.synchronous import Synchronous


def measured(speeds: Speeds, task: int, seconds: float, slots: int = 1, times: int = 5) -> None:
    for _ in range(times):
        speeds.observe(task, slots, seconds)


def test_before_anything_is_measured_the_calibration_gives_the_shares() -> None:
    speeds = Speeds({0: 300.0, 1: 100.0})
    assert speeds.share(0, {0, 1}) == pytest.approx(0.75)
    assert Speeds().share(0, {0, 1, 2, 3}) == pytest.approx(0.25)


def test_a_worker_without_calibration_counts_as_usual() -> None:
    speeds = Speeds({0: 300.0, 1: 100.0, 2: 200.0})
    assert speeds.speed_of(9) == speeds.speed_of(2)


def test_the_first_reply_of_each_size_is_left_out() -> None:
    speeds = Speeds()
    speeds.observe(0, 1, 50.0)
    speeds.observe(0, 4, 60.0)
    assert speeds.speed_of(0) == 1.0
    speeds.observe(0, 1, 0.0)
    assert speeds.speed_of(0) == 1.0, "a clock that did not move measures nothing"
    speeds.observe(0, 1, 0.5)
    assert speeds.speed_of(0) == 2.0


def test_one_slow_reply_is_shrugged_off_and_a_node_that_turned_slow_is_noticed() -> None:
    speeds = Speeds()
    measured(speeds, 0, 0.1, times=10)
    speeds.observe(0, 1, 9.0)
    assert speeds.speed_of(0) == pytest.approx(10.0)
    measured(speeds, 0, 1.0, times=9)
    assert speeds.speed_of(0) == pytest.approx(1.0)


def test_what_is_measured_of_one_says_what_the_calibration_means_for_another() -> None:
    speeds = Speeds({0: 100.0, 1: 25.0})
    measured(speeds, 0, 0.5)
    assert speeds.speed_of(1) == pytest.approx(0.5)


def test_what_a_busy_worker_has_left_follows_from_its_speed_and_is_never_negative() -> None:
    speeds = Speeds()
    measured(speeds, 0, 0.5)
    assert speeds.left(0, 4, 1.5) == pytest.approx(1.0)
    assert speeds.left(0, 4, 9.0) == 0.0


@pytest.mark.parametrize(
    ("fixed_seconds", "slower", "slots"), [(0.0, 1.35, 8), (0.4, 1.35, 16), (4.0, 1.0, 16)]
)
def test_what_a_part_of_any_size_costs_is_no_slowness_and_is_not_paid_twice(
    fixed_seconds: float, slower: float, slots: int
) -> None:
    speeds = Speeds()
    for task, slot_seconds in enumerate((0.1, 0.1 * slower)):
        for size in (8, 16):
            measured(speeds, task, fixed_seconds + size * slot_seconds, size)
    assert speeds.speed_of(1) == pytest.approx(10.0 / slower)
    assert speeds.left(1, 16, fixed_seconds) == pytest.approx(16.0)
    policy = Synchronous(32, speeds)
    policy.begin(range(1))
    assert policy.draw(1, frozenset({0, 1}), 0.0) == Grant(0, 0, slots)
