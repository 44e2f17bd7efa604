"""The shipped recipe ends with the same bits on one to sixteen workers, as it is."""

from collections.abc import Iterator

import pytest

from tests.cluster.jobs.cluster import Cluster, Done, cluster_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

SHIPPED = (
    "jobs.train.data.source=synthetic",
    "jobs.train.epochs=1",
    "jobs.train.validation_subjects=0",
)


@pytest.fixture(scope="module")
def sixteen() -> Iterator[Cluster]:
    with cluster_of(16, 2) as made:
        yield made


def trained(cluster: Cluster, mode: str) -> Done:
    """Keep network, batch and slots as they are shipped."""
    done = cluster.job("train", *SHIPPED, f"jobs.train.mode={mode}", code=0)
    assert done.result["slots"]["number"] == 32
    return done


def test_one_to_sixteen_workers_and_none(sixteen: Cluster) -> None:
    expected = trained(sixteen, "single").result["parameters_sha256"]
    print(f"single: {expected}")
    for workers, servers in ((1, 1), (2, 1), (3, 2), (4, 2), (16, 2)):
        done = trained(sixteen.part(workers, servers), "sync")
        print(f"{workers} workers, {servers} servers: {done.result['parameters_sha256']}")
        assert (done.result["workers"], done.result["ps"]) == (workers, servers)
        assert done.result["parameters_sha256"] == expected
        assert done.updates == done.result["updates"]["scheduled"] > 0
