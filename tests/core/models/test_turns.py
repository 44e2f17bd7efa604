"""Cosines and sines, against those of the C library."""

from math import cos, pi, sin

import numpy as np
import pytest

from core.models.window_statistics import cosines_and_sines


@pytest.mark.parametrize("turns", [0.125, 0.24, 3.3])
def test_a_turn_and_exact_quarters(turns: float) -> None:
    expected = (cos(2 * pi * turns), sin(2 * pi * turns))
    assert cosines_and_sines(turns) == pytest.approx(expected, abs=3e-15)
    found = np.abs(cosines_and_sines(np.arange(5) / 4))
    assert found.tolist() == [[1, 0, 1, 0, 1], [0, 1, 0, 1, 0]]
