"""Counting points inside the quarter circle, against NumPy on the very same points."""

from math import pi, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray

from cluster.engine.runtime import trace
from cluster.inventory import PiJob
from cluster.jobs.pi import BLOCK_SAMPLES, chunk_items, count_inside, estimate_of

import tensorflow as tf  # isort: skip


def words_of(seed: tuple[int, int]) -> NDArray[np.int32]:
    drawn = tf.random.stateless_uniform([BLOCK_SAMPLES], tf.constant(seed, tf.int64), None, None, tf.int32)
    words: NDArray[np.int32] = drawn.numpy()
    return words


def recounted(seed: tuple[int, int], samples: int) -> int:
    """The same points drawn block by block, then taken apart, squared in float64 (exactly) and counted by NumPy."""
    inside = 0
    for start in range(0, samples, BLOCK_SAMPLES):
        words = words_of((seed[0], seed[1] + start))[: samples - start].astype(np.int64)
        x, y = words // 2**16 + 0.5, words % 2**15 + 0.5
        inside += int(np.count_nonzero(x * x + y * y < 2.0**30))
    return inside


@pytest.mark.parametrize("samples", [1, BLOCK_SAMPLES - 1, BLOCK_SAMPLES, BLOCK_SAMPLES + 1, 200_000])
def test_equals_a_count_by_numpy(samples: int) -> None:
    seed = (3, 11 * BLOCK_SAMPLES)
    counted = trace(count_inside, tf.TensorSpec([2], tf.int64), tf.TensorSpec([], tf.int64))
    assert int(counted(tf.constant(seed, tf.int64), tf.constant(samples, tf.int64))) == recounted(seed, samples)


def test_words_are_uniform_in_both_coordinates() -> None:
    words = np.concatenate([words_of((0, k * BLOCK_SAMPLES)) for k in range(8)])
    for bits, count in ((words >> 16, 2**16), (words & (2**15 - 1), 2**15)):
        observed = np.bincount((bits.astype(np.int64) % count) * 64 // count, minlength=64)
        expected = len(words) / 64
        assert ((observed - expected) ** 2 / expected).sum() < 120  # chi-square, 63 degrees of freedom: p = 2e-5


def test_the_grid_is_off_by_as_little_as_is_said() -> None:
    """Cells of a quarter whose middle is inside, counted row by row."""
    x = np.arange(2**15, dtype=np.int64)
    rest = 2**30 - x * (x + 1)  # y (y + 1) must be below this
    y = np.floor((-1 + np.sqrt(1 + 4.0 * (rest - 1))) / 2).astype(np.int64)
    assert (y * (y + 1) < rest).all()
    assert ((y + 1) * (y + 2) >= rest).all()
    cells = int((np.minimum(y, 2**15 - 1) + 1).sum())
    assert cells == 843_314_812
    assert pi / 4 - cells / 2**30 == pytest.approx(4.1e-8, rel=0.02)


def block_seeds(job: PiJob) -> list[tuple[int, int]]:
    return [
        (int(seed[0]), int(seed[1]) + start)
        for seed, size in (item.arguments for item in chunk_items(job))
        for start in range(0, int(size), BLOCK_SAMPLES)
    ]


@pytest.mark.parametrize("chunk_samples", [1, 1000, BLOCK_SAMPLES, BLOCK_SAMPLES + 1, 1_000_000])
def test_no_two_blocks_of_a_job_share_a_seed(chunk_samples: int) -> None:
    job = PiJob(samples=chunk_samples * 20 + 7, chunk_samples=chunk_samples, seed=5)
    seeds = block_seeds(job)
    assert len(set(seeds)) == len(seeds)
    assert {seed for seed, _ in seeds} == {5}
    drawn = [tuple(words_of(seed)[:4]) for seed in seeds[:40]]
    assert len(set(drawn)) == len(drawn)


def test_chunks_add_up_to_the_samples_also_in_a_very_large_job() -> None:
    job = PiJob(samples=10**7 + 3, chunk_samples=10**6)
    assert sum(int(item.arguments[1]) for item in chunk_items(job)) == 10**7 + 3
    assert [item.id for item in chunk_items(job)] == list(range(11))
    large = PiJob(samples=10**14, chunk_samples=10**9, seed=2**31 - 1)
    *_, last = (item for item in chunk_items(large))
    assert 10**14 <= int(last.arguments[0][1]) + 10**9 < 2**62
    assert last.arguments[0].dtype == np.int64


def test_estimate_and_its_standard_error() -> None:
    estimate, error = estimate_of(785, 1000)
    assert estimate == pytest.approx(3.14)
    assert error == pytest.approx(4 * sqrt(0.785 * 0.215 / 1000))
    assert estimate_of(7_853_981_634, 10**10)[1] == pytest.approx(sqrt(pi * (4 - pi) / 10**10), rel=1e-6)


@pytest.mark.parametrize(("inside", "expected"), [(0, 0.0), (3, 4.0)])
def test_nothing_or_everything_inside_claims_no_certainty(inside: int, expected: float) -> None:
    estimate, error = estimate_of(inside, 3)
    assert estimate == expected
    assert error == pytest.approx(4 * sqrt(pi / 4 * (1 - pi / 4) / 3))
