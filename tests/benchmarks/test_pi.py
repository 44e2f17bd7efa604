from math import isqrt, pi

import numpy as np
import pytest

from benchmarks.pi import measure, summarize
from cluster.jobs.pi import BLOCK_SAMPLES, SIDE, count_inside

import tensorflow as tf  # isort: skip

CELLS_INSIDE = 843_314_812
"""Of the 2^30 cells of a quarter, as the docstring of `count_inside` states."""


def test_each_variant_estimates_pi() -> None:
    samples = 4 * BLOCK_SAMPLES
    rows = measure(samples, repeats=1)
    assert {row["variant"] for row in rows} == {"ours", "thesis_columns", "thesis_rows"}
    for row in rows:
        assert row["estimate"] == pytest.approx(pi, abs=5 * 1.65 / samples**0.5), row["variant"]
        assert row["samples_per_second"] > 0


def test_ours_is_compared_with_the_faster_of_the_thesis_s() -> None:
    speeds = {"ours": 200.0, "thesis_columns": 100.0, "thesis_rows": 80.0}
    rows = [{"variant": name, "samples_per_second": speed} for name, speed in speeds.items()]
    assert summarize(rows) == {
        "ours_over_thesis": 2.0,
        "ours_over": {"thesis_columns": 2.0, "thesis_rows": 2.5},
    }


@pytest.mark.parametrize("samples", [1, BLOCK_SAMPLES - 1, BLOCK_SAMPLES, BLOCK_SAMPLES + 7])
def test_the_count_is_that_of_the_drawn_words_in_wide_integers(samples: int) -> None:
    words = np.concatenate(
        [
            tf.random.stateless_uniform([BLOCK_SAMPLES], [3, 5 + k * BLOCK_SAMPLES], None, None, tf.int32).numpy()
            for k in range(2)
        ]
    )[:samples].astype(np.int64)
    x, y = 2 * (words >> 16) + 1, 2 * (words & (SIDE - 1)) + 1
    expected = int(np.count_nonzero(x * x + y * y < (2 * SIDE) ** 2))
    found = count_inside(tf.constant([3, 5], tf.int64), tf.constant(samples, tf.int64))
    assert int(found) == expected


def test_the_grid_s_share_inside_is_as_close_to_a_quarter_of_pi_as_stated() -> None:
    inside = sum((isqrt(4 * SIDE * SIDE - (2 * k + 1) ** 2 - 1) + 1) // 2 for k in range(SIDE))
    assert inside == CELLS_INSIDE
    assert abs(inside / SIDE**2 - pi / 4) == pytest.approx(4.1e-8, abs=0.1e-8)
