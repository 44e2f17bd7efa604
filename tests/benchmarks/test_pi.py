from math import pi

import pytest

from benchmarks.pi import measure, summarize
from worker_node.monte_carlo import BLOCK_SAMPLES


def test_each_variant_estimates_pi() -> None:
    samples = 4 * BLOCK_SAMPLES
    rows = measure(samples, repeats=1)
    assert {row["variant"] for row in rows} == {"ours", "thesis_columns", "thesis_rows"}
    for row in rows:
        assert row["estimate"] == pytest.approx(pi, abs=5 * 1.65 / samples**0.5), row["variant"]
        assert row["samples_per_second"] > 0


def test_ours_is_compared_with_the_rows_that_the_thesis_sums() -> None:
    speeds = {"ours": 200.0, "thesis_columns": 100.0, "thesis_rows": 80.0}
    rows = [{"variant": name, "samples_per_second": speed} for name, speed in speeds.items()]
    assert summarize(rows) == {
        "ours_over_thesis": 2.5,
        "ours_over": {"thesis_columns": 2.0, "thesis_rows": 2.5},
    }
