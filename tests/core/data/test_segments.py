"""Cutting windows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.data.recordings import Cutting, cut


@given(rows=st.integers(0, 60), steps=st.integers(1, 20), stride=st.integers(1, 25))
def test_windows_are_the_rows_they_start_at_and_none_is_left_out(
    rows: int, steps: int, stride: int
) -> None:
    samples = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    windows = cut(samples, Cutting(steps, stride, 0))
    starts = range(0, rows - steps + 1, stride)
    expected = [samples[start : start + steps] for start in starts]
    np.testing.assert_array_equal(windows, np.reshape(expected, (-1, steps, 2)))
