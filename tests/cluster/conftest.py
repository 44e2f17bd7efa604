"""Clusters that the tests of a process share."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.cluster.jobs.cluster import Cluster, cluster_of
from tests.habits import leaks


class Pool:
    """Clusters by numbers of workers and servers, made once and whole whenever a test gets one."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._clusters: dict[tuple[int, int], Cluster] = {}

    def __call__(self, workers: int, servers: int) -> Cluster:
        """Such a cluster, all of whose roles run."""
        key = (workers, servers)
        if key not in self._clusters:
            self._clusters[key] = self._stack.enter_context(cluster_of(workers, servers))
            leaks.KEPT.append(self._clusters[key].processes)
        self._clusters[key].mend()
        return self._clusters[key]

    def jobs(self) -> dict[int, str]:
        """The command line of each process that is a job of these clusters, by its pid."""
        return {pid: words for each in self._clusters.values() for pid, words in each.jobs()}


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """The pool, whether or not a test uses it."""
    with ExitStack() as stack:
        yield Pool(stack)
    leaks.KEPT.clear()


@pytest.fixture(scope="session")
def clusters(pool: Pool) -> Pool:
    """Clusters that tests share. The tiers know by this name which tests may start one."""
    return pool


@pytest.fixture(autouse=True)
def leaves_no_job_on_a_shared_cluster(pool: Pool) -> Iterator[None]:
    """Fails the test that leaves a job running, and ends the job: the next test has none.

    Roles that a test killed or stopped are started again when the next one gets its cluster.
    """
    before = pool.jobs()
    yield
    left = {pid: words for pid, words in pool.jobs().items() if pid not in before}
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if left:
        pytest.fail(f"left running: {'; '.join(left.values())}", pytrace=False)


@pytest.fixture
def cluster(clusters: Pool) -> Cluster:
    """Two workers and one parameter server, which other tests use too."""
    return clusters(2, 1)


@pytest.fixture
def two_servers(clusters: Pool) -> Cluster:
    """Two workers and two parameter servers, which other tests use too."""
    return clusters(2, 2)
