"""The benchmark of what a worker keeps of each call, and the bound that it was written for."""

import pytest

from benchmarks.beds.local_cluster import local_cluster
from experiments.coordinators.leak import argument_values, signature

CALLS = 4_000
MOST_BYTES_A_CALL = 500
"""A pool that grows once by 1 MB is 260 bytes of each call; what was mended were 2,816 of each, for
ever."""


def test_the_signature_is_that_of_the_arguments() -> None:
    assert [tuple(spec.shape) for spec in signature()] == [(), (100,), (), (2,), (2, 9), ()]
    assert len(argument_values(3)) == 6


@pytest.mark.long
def test_a_worker_keeps_nothing_of_a_call() -> None:
    with local_cluster(workers=1, servers=1) as cluster:
        flags = ["--calls", str(CALLS), "--worker", str(cluster.processes["worker:0"].pid)]
        found = cluster.coordinate(
            "experiments.coordinators.leak", ["ours"], flags, deadline_seconds=100.0
        )
    assert found["bytes_a_call"] < MOST_BYTES_A_CALL
