"""Another account of the machine sends graphs to a cluster's roles and coordinator."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.ground.accounts import ROLES_ACCOUNT
from tests.cluster.jobs.cluster import Cluster, Running
from tests.core.server.other_account import STRANGER, graphs_sent
from tests.habits import needs

pytestmark = pytest.mark.long


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every account can enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="pscluster-accounts-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def job(cluster: Cluster) -> Iterator[Running]:
    needs.root("becoming another account")
    with cluster.begun("pi", "jobs.pi.samples=1000000000000000") as running:
        cluster.metrics_when(running, "pscluster_pi_samples_total", 1_000_000)
        yield running


def test_no_graph_of_another_account_runs_and_the_cluster_s_own_does(
    cluster: Cluster, job: Running, reachable: Path
) -> None:
    ports = [task.port for task in cluster.inventory.tasks()]
    coordinator = cluster.inventory.task("coordinator", 0).port
    answers, files = graphs_sent(STRANGER, ports, reachable / "stranger")
    assert (set(answers.values()), files) == ({False}, [])
    answers, files = graphs_sent(os.geteuid(), ports, reachable / "own")
    # A role's cage lets no graph write; the person's own coordinator has none.
    assert answers == {**dict.fromkeys(ports, False), coordinator: True}
    assert [path.stat().st_uid for path in files] == [0]
    answers, files = graphs_sent(ROLES_ACCOUNT, ports, reachable / "of-a-role")
    assert (set(answers.values()), files) == ({False}, [])
    assert "a connection of account nobody (uid 65534) was closed unread" in job.cancelled().log
