from math import pi

import pytest

from benchmarks.pi import measure
from worker_node.monte_carlo import BLOCK_SAMPLES


def test_each_variant_estimates_pi() -> None:
    samples = 4 * BLOCK_SAMPLES
    rows = measure(samples, repeats=1)
    assert {row["variant"] for row in rows} == {"ours", "thesis_columns", "thesis_rows"}
    for row in rows:
        assert row["estimate"] == pytest.approx(pi, abs=5 * 1.65 / samples**0.5), row["variant"]
        assert row["samples_per_second"] > 0
