"""Counting points inside the quarter circle, against plain NumPy on the very same words."""

from math import pi, sqrt
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from core.engine.runtime import trace
from worker_node.monte_carlo import (
    BLOCK_SAMPLES,
    SURE_BELOW,
    UNDECIDED_BLOCK_SAMPLES,
    UNDECIDED_CELLS,
    count_inside,
)

import tensorflow as tf  # isort: skip

COARSE = 256
FINE = 65536


def words_of(seed: tuple[int, int], count: int) -> NDArray[np.int32]:
    drawn: NDArray[np.int32] = tf.random.stateless_uniform(
        [count], tf.constant(seed, tf.int64), None, None, tf.int32
    ).numpy()
    return drawn


def coarse_points(seed: tuple[int, int]) -> NDArray[np.int64]:
    """A block's points (2, BLOCK_SAMPLES) by their coarse cells.

    The low byte of a word is its first.
    """
    drawn = words_of(seed, BLOCK_SAMPLES // 2).astype("<i4").view(np.uint8)
    return drawn.reshape(2, BLOCK_SAMPLES).astype(np.int64)


CELLS = np.indices((COARSE, COARSE))
NEAR = (CELLS**2).sum(0)
FAR = ((CELLS + 1) ** 2).sum(0)
"""Squared distances of each cell's nearest and farthest corner."""
UNDECIDED = np.argwhere((NEAR >= SURE_BELOW) & (NEAR < COARSE**2))
"""The cells whose corners lie on both sides, in the order of x and then y."""


def undecided_points(seed: tuple[int, int]) -> NDArray[np.int64]:
    """Return a block's points of the undecided cells, by their cells of the fine grid.

    They are (2, UNDECIDED_BLOCK_SAMPLES).
    """
    drawn = tf.constant((seed[0], seed[1] + 1), tf.int64)
    chosen = tf.random.stateless_uniform(
        [UNDECIDED_BLOCK_SAMPLES], drawn, 0, len(UNDECIDED), tf.int64
    ).numpy()
    words = words_of((seed[0], seed[1] + 2), UNDECIDED_BLOCK_SAMPLES).astype(np.int64)
    return UNDECIDED.T[:, chosen] * FINE + np.stack([words // FINE + FINE // 2, words % FINE])


def recounted(seed: tuple[int, int], samples: int) -> int:
    """Take the points apart and count them block by block, in integers."""
    inside = undecided = 0
    for start in range(0, samples, BLOCK_SAMPLES):
        near = (coarse_points((seed[0], seed[1] + start)) ** 2).sum(0)[: samples - start]
        inside += int(np.count_nonzero(near < SURE_BELOW))
        undecided += int(np.count_nonzero((near >= SURE_BELOW) & (near < COARSE**2)))
    for start in range(0, undecided, UNDECIDED_BLOCK_SAMPLES):
        doubled = 2 * undecided_points((seed[0], seed[1] + start)) + 1
        hit = (doubled**2).sum(0) < (2 * COARSE * FINE) ** 2
        inside += int(np.count_nonzero(hit[: undecided - start]))
    return inside


@pytest.fixture(scope="module")
def counted() -> Any:
    function = trace(count_inside, tf.TensorSpec([2], tf.int64), tf.TensorSpec([], tf.int64))
    return lambda seed, samples: int(
        function(tf.constant(seed, tf.int64), tf.constant(samples, tf.int64))
    )


@pytest.mark.parametrize(
    "samples",
    [1, 2, 100, *(BLOCK_SAMPLES + one for one in (-1, 0, 1)), 200_000, 17 * BLOCK_SAMPLES + 5],
)
def test_equals_a_count_by_numpy(counted: Any, samples: int) -> None:
    """The last of them has more undecided points than fit into one block of those."""
    seed = (3, 11 * BLOCK_SAMPLES)
    assert counted(seed, samples) == recounted(seed, samples)


def test_a_cell_taken_for_sure_lies_on_one_side_with_all_its_corners() -> None:
    assert_array_equal(UNDECIDED_CELLS, UNDECIDED)
    assert len(UNDECIDED) == 557
    assert (FAR[NEAR < SURE_BELOW] <= COARSE**2).all()
    assert (NEAR[NEAR >= COARSE**2] > COARSE**2).all()


def test_the_grid_is_off_by_as_little_as_is_said() -> None:
    """Cells of the fine grid whose middle is inside, counted row by row in whole numbers."""
    side = COARSE * FINE
    cells = 0
    for start in range(0, side, 2**21):
        x = np.arange(start, start + 2**21, dtype=np.int64)
        rest = side**2 - x * (x + 1)  # y (y + 1) must be below this
        y = np.floor((np.sqrt(4.0 * rest - 3.0) - 1) / 2).astype(np.int64)
        assert (y * (y + 1) < rest).all()
        assert ((y + 1) * (y + 2) >= rest).all()
        cells += int((np.minimum(y, side - 1) + 1).sum())
    assert cells == 221_069_929_752_123
    bias = cells / side**2 - pi / 4
    assert bias == pytest.approx(4.4e-12, rel=0.01)
    assert pi / 4 * (1 - pi / 4) / bias**2 == pytest.approx(8.8e21, rel=0.02)


def chi_square(observed: NDArray[np.int64]) -> float:
    """Standard deviations of chi-square above its mean, for equally likely classes."""
    expected = observed.sum() / observed.size
    freedom = observed.size - 1
    return float((((observed - expected) ** 2 / expected).sum() - freedom) / sqrt(2 * freedom))


def test_points_are_uniform_and_their_coordinates_independent() -> None:
    coarse = np.concatenate([coarse_points((0, k * BLOCK_SAMPLES)) for k in range(16)], 1)
    assert chi_square(np.bincount(coarse[0] * COARSE + coarse[1], minlength=COARSE**2)) < 4
    starts = range(0, 16 * UNDECIDED_BLOCK_SAMPLES, UNDECIDED_BLOCK_SAMPLES)
    x, y = np.concatenate([undecided_points((0, start)) for start in starts], 1)
    cells = np.unique(x // FINE * COARSE + y // FINE, return_counts=True)[1]
    assert cells.size == len(UNDECIDED_CELLS)
    assert chi_square(cells) < 4
    assert chi_square(np.bincount(x % FINE // 2048 * 32 + y % FINE // 2048, minlength=32**2)) < 4


def test_counts_spread_as_those_of_independent_points_do(counted: Any) -> None:
    """A shared coordinate or a mirrored point would change the spread of 1,024 streams."""
    streams = 1024
    samples = 10_000
    counts = np.array([counted((7, k * BLOCK_SAMPLES), samples) for k in range(streams)])
    p = pi / 4
    variance = samples * p * (1 - p)
    assert abs(counts.mean() - samples * p) < 4 * sqrt(variance / streams)
    assert counts.var(ddof=1) / variance == pytest.approx(1.0, abs=4 * sqrt(2 / streams))
    neighbours = np.corrcoef(counts[:-1], counts[1:])[0, 1]
    assert abs(neighbours) < 4 / sqrt(streams)
