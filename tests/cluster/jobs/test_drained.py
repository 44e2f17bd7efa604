"""A worker is drained and ended while a training runs: nothing is lost or repeated."""

import pytest

from core.control.client import ask
from tests.cluster.jobs.cluster import HANG_SECONDS, Cluster

EPOCHS = 4
UPDATES_PER_EPOCH = 20
HELD = 45


def drain(cluster: Cluster, name: str) -> tuple[int, str]:
    address = cluster.inventory.task("coordinator", 0).metrics_address
    answer = ask(address, "POST", f"/drain/{name}", deadline_seconds=HANG_SECONDS)
    return answer.status, answer.text.strip()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_drained_worker_is_ended_and_costs_no_update_and_no_repetition(
    cluster: Cluster, mode: str
) -> None:
    # A backup worker repeats on purpose what is late, and on a busy machine something always is.
    words = (f"mode={mode}", f"epochs={EPOCHS}", "validation_subjects=0", "sync.backup_workers=0")
    with cluster.held(HELD, words=words) as job:
        assert drain(cluster, "worker:1") == (200, "drained")
        cluster.kill("worker:1")
        last = drain(cluster, "worker:0?seconds=0.1")
        unknown = [drain(cluster, name)[0] for name in ("worker:2", "ps:0", "worker:")]
        metrics = cluster.metrics()
        job.let_go(HELD)
        done = job.end(0)
    assert last == (409, "no other worker was there to take its work")
    assert unknown == [404, 404, 404]
    assert metrics["pscluster_worker_departures_total"] == {("worker", "0"): 0, ("worker", "1"): 0}
    assert done.updates == done.result["epochs_done"] * UPDATES_PER_EPOCH
    assert done.result["epochs_done"] == EPOCHS
    assert done.result["updates"]["duplicates_dropped"] == 0
    assert sum(map(sum, done.result["confusion"])) == 120
    assert "worker:1 is drained; 1 of 2 workers continue" in done.log
    assert " left (" not in done.log
    assert "overdue" not in done.log
