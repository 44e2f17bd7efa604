"""The shipped recipe ends with the same bits on one to sixteen workers, as it is."""

from collections.abc import Iterator

import pytest

from tests.cluster.jobs.cluster import Cluster, cluster_of
from tests.cluster.jobs.golden import recipes

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

SHIPPED = recipes()["shipped"]
"""Network, batch and slots as they are shipped."""


@pytest.fixture(scope="module")
def sixteen() -> Iterator[Cluster]:
    with cluster_of(16, 2) as made:
        yield made


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (2, 1), (3, 2), (4, 2), (16, 2)])
def test_the_golden_bits(sixteen: Cluster, workers: int, servers: int) -> None:
    part = sixteen.part(workers, servers)
    done = part.job("train", *SHIPPED["settings"], "jobs.train.mode=sync", code=0)
    assert done.result["slots"]["number"] == 32
    assert (done.result["workers"], done.result["ps"]) == (workers, servers)
    assert done.result["parameters_sha256"] == SHIPPED["parameters_sha256"]
    assert done.updates == done.result["updates"]["scheduled"] > 0
