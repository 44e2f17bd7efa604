"""Clusters that the tests of a process share."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.jobs.cluster import Cluster, cluster_of
from tests.habits import leaks

Pool = Callable[[int, int], Cluster]


@pytest.fixture(scope="session")
def clusters() -> Iterator[Pool]:
    """Clusters by numbers of workers and servers, made once and whole whenever a test gets one."""
    held: dict[tuple[int, int], Cluster] = {}
    with ExitStack() as stack:

        def whole(workers: int, servers: int) -> Cluster:
            key = (workers, servers)
            if key not in held:
                held[key] = stack.enter_context(cluster_of(workers, servers))
                leaks.KEPT.append(held[key].processes)
            held[key].mend()
            return held[key]

        yield whole
    leaks.KEPT.clear()


@pytest.fixture
def cluster(clusters: Pool) -> Cluster:
    """Two workers and one parameter server, which other tests use too."""
    return clusters(2, 1)


@pytest.fixture
def two_servers(clusters: Pool) -> Cluster:
    """Two workers and two parameter servers, which other tests use too."""
    return clusters(2, 2)
