"""Two-way filters in blocks are those over the whole recording."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cluster.data.filters import nine_channels
from cluster.data.filters_in_blocks import BLOCK_STEPS, MARGIN_STEPS, TwoWayInBlocks
from tests.recognise.readings import walk


def in_chunks(count: int, *sizes: int) -> NDArray[np.float32]:
    readings, filters, start, turn = walk(count), TwoWayInBlocks(), 0, 0
    found = []
    while start < count:
        chunk = readings.rows(slice(start, start + sizes[turn % len(sizes)]))
        found.append(filters.push(chunk.acceleration, chunk.rotation))
        start, turn = start + len(chunk), turn + 1
    return np.concatenate([*found, filters.end()])


@pytest.mark.parametrize(
    "count", [32, 33, MARGIN_STEPS, BLOCK_STEPS + MARGIN_STEPS - 1, BLOCK_STEPS + MARGIN_STEPS, 3 * BLOCK_STEPS + 77]
)
def test_blocks_have_the_channels_of_the_whole_recording(count: int) -> None:
    readings = walk(count)
    whole, found = nine_channels(readings.acceleration, readings.rotation), in_chunks(count, 4096)
    assert found.shape == whole.shape
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-6)


def test_chunks_of_any_length_give_the_same_bits() -> None:
    count = 2 * BLOCK_STEPS + 5
    expected = in_chunks(count, count)
    for sizes in ((1000,), (7, 4096, 1), (BLOCK_STEPS,)):
        np.testing.assert_array_equal(in_chunks(count, *sizes), expected)


def test_what_is_too_short_for_the_filters_has_no_channels_and_an_end_forgets() -> None:
    filters, readings = TwoWayInBlocks(), walk(40)
    filters.push(readings.acceleration[:31], readings.rotation[:31])
    assert filters.end().shape == (0, 9)
    filters.push(readings.acceleration, readings.rotation)
    np.testing.assert_array_equal(filters.end(), nine_channels(readings.acceleration, readings.rotation))
    assert filters.end().shape == (0, 9)
