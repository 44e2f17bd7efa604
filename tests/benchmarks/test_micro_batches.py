"""What the benchmark of micro-batches says about its rounds."""

import os

from benchmarks.micro_batches import cpu_seconds, summarize


def test_ratios_are_taken_within_a_round() -> None:
    """The second round ran on a machine that was half as fast."""
    rows = [
        {"round": turn, "asked_for": name, "micro_batches": 2, "cpu_milliseconds_a_window": cost * (1 + turn)}
        for turn in range(2)
        for name, cost in {"auto": 0.55, "2": 0.5, "16": 1.0}.items()
    ]
    found = summarize(rows, cores=2)
    assert found["over_one_a_core"] == {"auto": 1.1, "2": 1.0, "16": 2.0}
    assert found["shipped_over_one_a_core"] == 1.1
    assert found["cpu_milliseconds_a_window"]["16"] == 1.5


def test_the_time_of_a_process_rises() -> None:
    before = cpu_seconds(os.getpid())
    assert sum(number * number for number in range(3_000_000)) > 0
    assert 0 < cpu_seconds(os.getpid()) - before < 60
