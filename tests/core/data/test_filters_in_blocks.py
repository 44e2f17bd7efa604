"""Two-way filters in blocks are those over the whole recording."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal

from core.data.filters import FILTER_ORDER, SAMPLE_RATE_HZ, SECTIONS, nine_channels
from core.data.filters_in_blocks import BLOCK_STEPS, MARGIN_STEPS, TwoWayInBlocks
from tests.recognise.readings import walk


def in_chunks(count: int, *sizes: int) -> NDArray[np.float32]:
    readings = walk(count)
    filters = TwoWayInBlocks()
    start = 0
    size = itertools.cycle(sizes)
    found = []
    while start < count:
        chunk = readings.rows(slice(start, start + next(size)))
        found.append(filters.push(chunk.acceleration, chunk.rotation))
        start += len(chunk)
    return np.concatenate([*found, filters.end()])


@pytest.mark.parametrize(
    "count",
    [
        32,
        33,
        MARGIN_STEPS,
        BLOCK_STEPS + MARGIN_STEPS - 1,
        BLOCK_STEPS + MARGIN_STEPS,
        3 * BLOCK_STEPS + 77,
    ],
)
def test_blocks_have_the_channels_of_the_whole_recording(count: int) -> None:
    readings = walk(count)
    whole = nine_channels(readings.acceleration, readings.rotation)
    found = in_chunks(count, 4096)
    assert found.shape == whole.shape
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize("sizes", [(1000,), (7, 4096, 1), (BLOCK_STEPS,)])
def test_chunks_of_any_length_give_the_same_bits(sizes: tuple[int, ...]) -> None:
    count = 2 * BLOCK_STEPS + 5
    np.testing.assert_array_equal(in_chunks(count, *sizes), in_chunks(count, count))


def test_what_is_too_short_for_the_filters_has_no_channels_and_an_end_forgets() -> None:
    filters = TwoWayInBlocks()
    readings = walk(40)
    sensors = (readings.acceleration, readings.rotation)
    filters.push(*(sensor[:31] for sensor in sensors))
    assert filters.end().shape == (0, 9)
    filters.push(*sensors)
    np.testing.assert_array_equal(filters.end(), nine_channels(*sensors))
    assert filters.end().shape == (0, 9)


@pytest.mark.parametrize("cutoff_hz", SECTIONS)
def test_the_written_coefficients_are_those_of_scipy_but_for_its_last_bits(
    cutoff_hz: float,
) -> None:
    expected = signal.butter(FILTER_ORDER, cutoff_hz, fs=SAMPLE_RATE_HZ, output="sos")
    written = [[float.fromhex(word) for word in row.split()] for row in SECTIONS[cutoff_hz]]
    np.testing.assert_allclose(written, expected, rtol=1e-14)
