"""A training and its roles under crowds of connections that ask nothing, with few descriptors."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cluster.control.client import ask
from tests.control.crowd import crowd
from tests.jobs.cluster import HANG_SECONDS, SMALL, Cluster, cluster_of, own_recordings

FEW = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
EPOCHS = 250
UPDATES = "pscluster_train_updates_applied_total"
ENOUGH = 200
"""Updates under the crowds before they go."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of(2) as started:
        own_recordings(started.folder / "mine.npz")
        yield started


@pytest.mark.long
def test_a_training_outlives_crowds_at_its_page_its_metrics_and_its_roles(cluster: Cluster) -> None:
    settings = (*SMALL, f"jobs.train.epochs={EPOCHS}", f"jobs.train.data.source={cluster.folder / 'mine.npz'}")
    ours, workers = cluster.inventory.task("coordinator", 0), cluster.inventory.of_role("worker")
    assert ours.page_port is not None
    with cluster.begun("train", *settings, prefix=FEW) as job:
        before = sum(cluster.metrics_when(job, UPDATES, 1)[UPDATES].values())
        with ExitStack() as crowds:
            crowds.enter_context(crowd(ours.page_port, 1300))
            crowds.enter_context(crowd(ours.metrics_port, 1400, trickle=True))
            crowds.enter_context(crowd(workers[0].metrics_port, 900))
            page = ask(f"{ours.host}:{ours.page_port}", "GET", "/api/status", deadline_seconds=HANG_SECONDS)
            assert json.loads(page.text)["job"] == "train"
            for task in (ours, *workers):
                assert ask(task.metrics_address, "GET", "/ready", deadline_seconds=HANG_SECONDS).status == 200
            cluster.metrics_when(job, UPDATES, before + ENOUGH)
        done = job.end()
    assert done.code == 0, done.errors
    assert done.folder is not None
    assert done.result["status"] == "done"
    for name in ("result.json", "history.jsonl", "coordinator.log", "report.html"):
        assert (done.folder / name).is_file(), name
    crowded = [line for line in done.log.splitlines() if "connections at once" in line]
    assert 0 < len(crowded) <= 2 * (1 + int(done.result["elapsed_seconds"]) // 60), done.log
    assert "Too many open files" not in done.log + done.errors
    assert len(done.errors.splitlines()) < EPOCHS + 100
