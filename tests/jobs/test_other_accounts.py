"""Another account of the machine that a cluster runs on sends graphs to its roles and to its coordinator."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.habits import needs
from tests.jobs.cluster import Cluster, cluster_of
from tests.server.other_account import STRANGER, graphs_sent


@pytest.fixture(autouse=True, scope="module")
def as_root() -> None:
    needs.root("becoming another account")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=1) as running:
        yield running


@pytest.mark.long
@pytest.mark.timeout(300)
def test_no_graph_of_another_account_runs_and_the_cluster_s_own_does(cluster: Cluster, tmp_path: Path) -> None:
    ports = [task.port for task in cluster.inventory.tasks()]
    with cluster.begun("pi", "jobs.pi.samples=1000000000000000") as job:
        cluster.metrics_when(job, "pscluster_pi_samples_total", 1_000_000)
        answers, files = graphs_sent(STRANGER, ports, tmp_path / "stranger")
        assert set(answers.values()) == {False}
        assert files == []
        answers, files = graphs_sent(os.geteuid(), ports, tmp_path / "own")
        assert set(answers.values()) == {True}
        assert len(files) == len(ports) == 3
        job.interrupt()
        done = job.end()
    assert done.code == 130, done.errors
    assert "a connection of account nobody (uid 65534) was closed unread" in done.log
