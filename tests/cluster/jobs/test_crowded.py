"""A training and its roles under crowds of connections that ask nothing, with few descriptors."""

import json
from contextlib import ExitStack

import pytest

from core.control.client import ask
from tests.cluster.jobs.cluster import HANG_SECONDS, Cluster
from tests.core.control.crowd import crowd

FEW = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
EPOCHS = 250
UPDATES = "pscluster_train_updates_applied_total"
ENOUGH = 200
"""Updates under the crowds before they go."""


def asked(address: str, path: str) -> str:
    """What one of them answers, in spite of the crowd."""
    answer = ask(address, "GET", path, deadline_seconds=HANG_SECONDS)
    assert answer.status == 200
    return answer.text


@pytest.mark.long
def test_a_training_outlives_crowds_at_its_page_its_metrics_and_its_roles(cluster: Cluster) -> None:
    ours = cluster.inventory.task("coordinator", 0)
    workers = cluster.inventory.of_role("worker")
    assert ours.page_port is not None
    with cluster.training(f"epochs={EPOCHS}", prefix=FEW) as job:
        before = sum(cluster.metrics_when(job, UPDATES, 1)[UPDATES].values())
        with ExitStack() as crowds:
            crowds.enter_context(crowd(ours.page_port, 1300))
            crowds.enter_context(crowd(ours.metrics_port, 1400, trickle=True))
            crowds.enter_context(crowd(workers[0].metrics_port, 900))
            page = asked(f"{ours.host}:{ours.page_port}", "/api/status")
            assert json.loads(page)["job"] == "train"
            for task in (ours, *workers):
                asked(task.metrics_address, "/ready")
            cluster.metrics_when(job, UPDATES, before + ENOUGH)
        done = job.end(0)
    assert done.result["status"] == "done"
    for name in ("result.json", "history.jsonl", "coordinator.log", "report.html"):
        assert (done.run / name).is_file(), name
    crowded = [line for line in done.log.splitlines() if "connections at once" in line]
    assert 0 < len(crowded) <= 2 * (1 + int(done.result["elapsed_seconds"]) // 60), done.log
    assert "Too many open files" not in done.log + done.errors
    assert len(done.errors.splitlines()) < EPOCHS + 100
