"""Turned and warped windows: what stays as it was, what a seed decides, what is refused."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from cluster.errors import UsageError
from cluster.inventory.training import AugmentSettings
from cluster.models.augmentation import Augmentation
from cluster.models.network import Problem

PROBLEM = Problem((32, 6), 4)
STANDARDIZATION = np.stack([np.linspace(-1, 1, 6), np.linspace(1, 3, 6)]).astype(np.float32)


def augmented(settings: AugmentSettings, windows: NDArray[np.float32], seed: tuple[int, int]) -> NDArray[np.float32]:
    """Windows in their own units in, and out."""
    of = Augmentation.of(settings, PROBLEM)
    assert of is not None
    standard = (windows - STANDARDIZATION[0]) / STANDARDIZATION[1]
    traced = tf.function(of, autograph=False)
    found: NDArray[np.float32] = traced(
        tf.constant(standard), tf.constant(STANDARDIZATION), tf.constant(seed, tf.int32)
    ).numpy()
    raw: NDArray[np.float32] = found * STANDARDIZATION[1] + STANDARDIZATION[0]
    return raw


def drawn(count: int = 50) -> NDArray[np.float32]:
    return np.random.default_rng(3).normal(0.3, 1.0, (count, 32, 6)).astype(np.float32)


def test_turning_keeps_every_length_and_turns_all_sensors_of_a_window_alike() -> None:
    windows = drawn()
    windows[..., 3:] = 2 * windows[..., :3]
    found = augmented(AugmentSettings(rotation_degrees=90.0), windows, (1, 2))
    before, after = (np.linalg.norm(x.reshape(50, 32, 2, 3), axis=3) for x in (windows, found))
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[..., 3:], 2 * found[..., :3], atol=1e-3)
    assert np.abs(found - windows).max() > 0.5
    for window, turned in zip(windows, found, strict=True):
        turn, *_ = np.linalg.lstsq(window[:, :3], turned[:, :3], rcond=None)
        assert np.linalg.det(turn) == pytest.approx(1.0, abs=1e-3), "a mirror image is no turn"


def test_no_turn_is_larger_than_its_limit() -> None:
    windows = drawn()
    found = augmented(AugmentSettings(rotation_degrees=20.0), windows, (1, 2))
    angles = []
    for window, turned in zip(windows, found, strict=True):
        turn, *_ = np.linalg.lstsq(window[:, :3], turned[:, :3], rcond=None)
        angles.append(np.degrees(np.arccos(np.clip((np.trace(turn) - 1) / 2, -1, 1))))
    assert max(angles) < 20.5
    assert max(angles) > 15
    assert np.std(angles) > 2


def test_warping_keeps_both_ends_and_the_order_of_time() -> None:
    rising = np.tile(np.arange(32, dtype=np.float32)[None, :, None], (50, 1, 6))
    found = augmented(AugmentSettings(time_warp=0.4), rising, (1, 2))
    np.testing.assert_allclose(found[:, 0], 0, atol=1e-4)
    np.testing.assert_allclose(found[:, -1], 31, atol=1e-3)
    pace = np.diff(found[..., 0], axis=1)
    assert pace.min() > 0.55
    assert pace.max() < 1.45
    assert np.abs(pace - 1).max() > 0.25
    assert np.ptp(found, axis=2).max() < 1e-4, "all channels have one time"


def test_equal_seeds_change_alike_and_others_do_not() -> None:
    settings, windows = AugmentSettings(rotation_degrees=30.0, time_warp=0.2), drawn(5)
    first, again, other = (augmented(settings, windows, seed) for seed in ((1, 2), (1, 2), (1, 3)))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1


def test_without_settings_there_is_none() -> None:
    assert Augmentation.of(None, PROBLEM) is None
    np.testing.assert_allclose(augmented(AugmentSettings(), drawn(2), (0, 0)), drawn(2), atol=1e-5)


def test_channels_that_are_no_sensors_are_not_turned() -> None:
    with pytest.raises(UsageError, match="rotation_degrees: expected channels in threes"):
        Augmentation.of(AugmentSettings(rotation_degrees=5.0), Problem((32, 4), 3))
    assert Augmentation.of(AugmentSettings(time_warp=0.1), Problem((32, 4), 3)) is not None
