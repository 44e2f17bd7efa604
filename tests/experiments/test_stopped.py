"""The benchmark of many workers that stop at once: what it sums up, and a small one on a real
cluster."""

import pytest

from experiments.stopped import LIMIT_SECONDS, measure


@pytest.mark.long
def test_when_two_of_four_stop_the_others_go_on_and_nothing_is_lost() -> None:
    row = measure(workers=4)
    assert row["left"] == row["stopped"] == 2
    assert row["updates_while_stopped"] > 0
    assert row["longest_gap_seconds"] < LIMIT_SECONDS
