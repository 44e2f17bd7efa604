"""The benchmark of what a worker keeps of each call, and the bound that it was written for."""

import pytest

from benchmarks.beds.local_cluster import local_cluster
from benchmarks.coordinators.leak import argument_values, signature
from benchmarks.leak import summarize

CALLS = 4_000
MOST_BYTES_A_CALL = 500
"""A pool that grows once by 1 MB is 260 bytes of each call; what was mended were 2,816 of each, for ever."""


def test_the_signature_is_that_of_the_arguments() -> None:
    assert [tuple(spec.shape) for spec in signature()] == [(), (100,), (), (2,), (2, 9), ()]
    assert len(argument_values(3)) == 6


def test_the_summary_is_the_median_round_of_each() -> None:
    rows = [
        {"contestant": name, "bytes_a_call": value, "coordinator_cpu_ms_a_call": 1.0, "calls_per_second": 2.0}
        for name in ("ours", "stock")
        for value in (1.0, 2.0, 9.0)
    ]
    assert summarize(rows)["ours"]["bytes_a_call"] == 2.0


@pytest.mark.long
def test_a_worker_keeps_nothing_of_a_call() -> None:
    with local_cluster(workers=1, servers=1) as cluster:
        flags = ["--calls", str(CALLS), "--worker", str(cluster.processes["worker:0"].pid)]
        found = cluster.coordinate("benchmarks.coordinators.leak", ["ours"], flags, deadline_seconds=100.0)
    assert found["bytes_a_call"] < MOST_BYTES_A_CALL
