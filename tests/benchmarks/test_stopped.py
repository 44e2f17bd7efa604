"""The benchmark of many workers that stop at once: what it sums up, and a small one on a real cluster."""

import pytest

from benchmarks.stopped import LIMIT_SECONDS, measure, summarize


def test_the_summary_is_the_median_round_and_the_worst() -> None:
    rows = [{"workers": 32, "stopped": 16, "longest_gap_seconds": value} for value in (1.0, 9.0, 2.0)]
    summary = summarize(rows)
    assert (summary["longest_gap_seconds"], summary["longest_gap_of_any_round_seconds"]) == (2.0, 9.0)


@pytest.mark.long
def test_when_two_of_four_stop_the_others_go_on_and_nothing_is_lost() -> None:
    row = measure(workers=4)
    assert row["left"] == row["stopped"] == 2
    assert row["updates_while_stopped"] > 0
    assert row["longest_gap_seconds"] < LIMIT_SECONDS
