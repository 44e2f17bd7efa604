"""A worker that is drained, then ended, while a training runs: nothing is lost, repeated or waited for."""

from collections.abc import Iterator

import pytest

from cluster.control.client import ask
from tests.jobs.cluster import HANG_SECONDS, SMALL, Cluster, cluster_of, own_recordings

EPOCHS, UPDATES_PER_EPOCH = 20, 20


def drain(cluster: Cluster, name: str, query: str = "") -> tuple[int, str]:
    ours = cluster.inventory.task("coordinator", 0)
    answer = ask(ours.metrics_address, "POST", f"/drain/{name}{query}", deadline_seconds=HANG_SECONDS)
    return answer.status, answer.text.strip()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2) as running:
        own_recordings(running.folder / "mine.npz")
        yield running


@pytest.fixture
def mine(cluster: Cluster) -> str:
    return f"jobs.train.data.source={cluster.folder / 'mine.npz'}"


@pytest.mark.long
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_drained_worker_is_ended_and_costs_no_update_and_no_repetition(
    cluster: Cluster, mine: str, mode: str
) -> None:
    # A backup worker repeats on purpose what is late, and on a busy machine something always is.
    settings = (f"jobs.train.mode={mode}", f"jobs.train.epochs={EPOCHS}", "jobs.train.sync.backup_workers=0")
    with cluster.begun("train", mine, *SMALL, *settings, "jobs.train.validation_subjects=0") as job:
        job.until("epoch   2/")
        assert drain(cluster, "worker:1") == (200, "drained")
        cluster.kill("worker:1")
        last = drain(cluster, "worker:0", "?seconds=0.1")
        unknown = [drain(cluster, name)[0] for name in ("worker:2", "ps:0", "worker:")]
        metrics = cluster.metrics()
        done = job.end()
    assert last == (409, "no other worker was there to take its work")
    assert unknown == [404, 404, 404]
    # Between the kill and here a call to the dead process would have failed, and made it leave.
    assert metrics["pscluster_worker_departures_total"] == {("worker", "0"): 0, ("worker", "1"): 0}
    assert done.code == 0, done.errors
    assert done.result["epochs_done"] == EPOCHS
    updates = done.result["updates"]
    assert updates["scheduled"] == updates["applied"] == EPOCHS * UPDATES_PER_EPOCH
    assert updates["duplicates_dropped"] == 0
    assert sum(map(sum, done.result["confusion"])) == 120
    assert "worker:1 is drained; 1 of 2 workers continue" in done.log
    assert " left (" not in done.log
    assert "overdue" not in done.log


@pytest.mark.long
def test_a_worker_that_holds_parameters_is_not_drained(cluster: Cluster, mine: str) -> None:
    with cluster.begun("train", mine, *SMALL, "jobs.train.mode=allreduce", "jobs.train.epochs=100000") as job:
        job.until("epoch   1/")
        status, words = drain(cluster, "worker:1")
        job.interrupt()
        assert job.end().code == 130
    assert status == 409
    assert words.startswith("it holds a part of the parameters in mode allreduce")
