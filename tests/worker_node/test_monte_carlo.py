"""Counting points inside the quarter circle, against plain NumPy on the very same words."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from core.engine.runtime import trace
from core.ground.lazy import tf
from worker_node.monte_carlo import (
    BLOCK_SAMPLES,
    SURE_BELOW,
    UNDECIDED_BLOCK_SAMPLES,
    UNDECIDED_CELLS,
    count_inside,
)

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
