"""Cutting windows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cluster.data.recordings import Cutting, cut


@given(rows=st.integers(0, 60), steps=st.integers(1, 20), stride=st.integers(1, 25))
def test_windows_are_the_rows_they_start_at_and_none_is_left_out(rows: int, steps: int, stride: int) -> None:
    samples = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    windows = cut(samples, Cutting(steps, stride, 0))
    starts = [start for start in range(0, rows, stride) if start + steps <= rows]
    assert windows.shape == (len(starts), steps, 2)
    for window, start in zip(windows, starts, strict=True):
        np.testing.assert_array_equal(window, samples[start : start + steps])
