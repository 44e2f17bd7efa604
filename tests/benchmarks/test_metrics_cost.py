"""The arithmetic of `benchmarks.metrics_cost`, and its reader against real exporters."""

import pytest

from benchmarks.metrics_cost import Spent, percent


def test_the_share_is_that_of_all_processes_together() -> None:
    assert percent([Spent(0.1, 10.0), Spent(0.2, 50.0)]) == pytest.approx(0.5)
