"""Turned and warped windows: what stays as it was, what a seed decides, what is refused."""

import numpy as np
import pytest

from core.ground.errors import UsageError
from core.ground.lazy import tf
from core.inventory.training_sections import AugmentSettings
from core.models.network import Problem
from core.models.window_statistics import Augmentation
from tests.core.models.yardstick import Vector, close

PROBLEM = Problem((32, 6), 4)
STANDARDIZATION = np.stack([np.linspace(-1, 1, 6), np.linspace(1, 3, 6)]).astype(np.float32)
WINDOWS = np.random.default_rng(3).normal(0.3, 1.0, (50, 32, 6)).astype(np.float32)


def augmented(
    windows: Vector,
    seed: tuple[int, int] = (1, 2),
    problem: Problem = PROBLEM,
    moments: Vector = STANDARDIZATION,
    **settings: float,
) -> Vector:
    """Windows in their own units in, and out."""
    of = Augmentation.from_settings(AugmentSettings(**settings), problem)
    assert of is not None
    traced = tf.function(of, autograph=False)
    standard = tf.constant((windows - moments[0]) / moments[1])
    found = traced(standard, tf.constant(moments), tf.constant(seed, tf.int32))
    raw: Vector = found.numpy() * moments[1] + moments[0]
    return raw


def turns(windows: Vector, found: Vector) -> list[Vector]:
    """The matrix that turned the first sensor of each window."""
    pairs = zip(windows[..., :3], found[..., :3], strict=True)
    return [np.linalg.lstsq(window, turned, rcond=None)[0] for window, turned in pairs]


def test_turning_keeps_every_length_and_turns_all_sensors_of_a_window_alike() -> None:
    windows = np.concatenate([WINDOWS[..., :3], 2 * WINDOWS[..., :3]], 2)
    found = augmented(windows, rotation_degrees=90.0)
    before, after = (np.linalg.norm(x.reshape(50, 32, 2, 3), axis=3) for x in (windows, found))
    close(after, before, 1e-4)
    close(found[..., 3:], 2 * found[..., :3], 1e-4)
    assert np.abs(found - windows).max() > 0.5
    # A mirror image is no turn.
    close(np.linalg.det(turns(windows, found)), np.ones(50), 5e-4)


def test_no_turn_is_larger_than_its_limit() -> None:
    cosines = (np.trace(turns(WINDOWS, augmented(WINDOWS, rotation_degrees=20.0)), 0, 1, 2) - 1) / 2
    angles = np.degrees(np.arccos(np.clip(cosines, -1, 1)))
    assert 15 < angles.max() < 20.5
    assert angles.std() > 2


def test_warping_keeps_both_ends_and_the_order_of_time() -> None:
    rising = np.tile(np.arange(32, dtype=np.float32)[None, :, None], (50, 1, 6))
    found = augmented(rising, time_warp=0.4)
    close(found[:, [0, -1]], rising[:, [0, -1]], 3e-5)
    pace = np.diff(found[..., 0], axis=1)
    assert 0.55 < pace.min() < pace.max() < 1.45
    assert np.abs(pace - 1).max() > 0.25
    assert np.ptp(found, axis=2).max() < 1e-4, "all channels have one time"


def test_equal_seeds_change_alike_and_others_do_not() -> None:
    first, again, other = (
        augmented(WINDOWS[:5], seed, rotation_degrees=30.0, time_warp=0.2)
        for seed in ((1, 2), (1, 2), (1, 3))
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1


def test_without_settings_there_is_none() -> None:
    assert Augmentation.from_settings(None, PROBLEM) is None
    close(augmented(WINDOWS), WINDOWS, 3e-6)


def test_channels_that_are_no_sensors_are_not_turned() -> None:
    four = Problem((32, 4), 3)
    with pytest.raises(UsageError, match="rotation_degrees: expected channels in threes"):
        Augmentation.from_settings(AugmentSettings(rotation_degrees=5.0), four)
    assert Augmentation.from_settings(AugmentSettings(time_warp=0.1), four) is not None
