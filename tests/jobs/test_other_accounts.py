"""Another account of the machine that a cluster runs on sends graphs to its roles and to its coordinator."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.server.accounts import ROLES_ACCOUNT
from tests.habits import needs
from tests.jobs.cluster import Cluster, cluster_of
from tests.server.other_account import STRANGER, graphs_sent


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    needs.root("becoming another account")
    with cluster_of(workers=1) as running:
        yield running


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every account can enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="pscluster-accounts-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_no_graph_of_another_account_runs_and_the_cluster_s_own_does(cluster: Cluster, reachable: Path) -> None:
    ports = [task.port for task in cluster.inventory.tasks()]
    with cluster.begun("pi", "jobs.pi.samples=1000000000000000") as job:
        cluster.metrics_when(job, "pscluster_pi_samples_total", 1_000_000)
        answers, files = graphs_sent(STRANGER, ports, reachable / "stranger")
        assert set(answers.values()) == {False}
        assert files == []
        answers, files = graphs_sent(os.geteuid(), ports, reachable / "own")
        assert set(answers.values()) == {True}
        assert len(files) == len(ports) == 3
        assert {path.stat().st_uid for path in files} == {0, ROLES_ACCOUNT}
        job.interrupt()
        done = job.end()
    assert done.code == 130, done.errors
    assert "a connection of account nobody (uid 65534) was closed unread" in done.log


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_graph_that_a_role_runs_has_no_rights_of_root_s_and_none_reaches_the_coordinator(
    cluster: Cluster, reachable: Path
) -> None:
    """Whoever takes over a role has the roles' account: neither root's files nor the port of root's job are theirs."""
    roles = [task.port for task in cluster.inventory.tasks() if task.role != "coordinator"]
    coordinator = cluster.inventory.task("coordinator", 0).port
    with cluster.begun("pi", "jobs.pi.samples=1000000000000000") as job:
        cluster.metrics_when(job, "pscluster_pi_samples_total", 1_000_000)
        answers, files = graphs_sent(os.geteuid(), roles, reachable / "root-s", mode=0o755)
        assert set(answers.values()) == {False}
        assert files == []
        answers, files = graphs_sent(ROLES_ACCOUNT, [*roles, coordinator], reachable / "anybody-s")
        assert answers == {**dict.fromkeys(roles, True), coordinator: False}
        assert {path.stat().st_uid for path in files} == {ROLES_ACCOUNT}
        assert len(files) == len(roles)
        job.interrupt()
        assert job.end().code == 130
