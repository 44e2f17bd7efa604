"""What is left of a job that is interrupted, and of a training that loses a worker."""

from collections.abc import Iterator

import pytest

from cluster.jobs.train_result import load
from tests.jobs.cluster import SMALL, Cluster, cluster_of, own_recordings

ENDLESS = "jobs.train.epochs=100000"
EXPORTED = {
    "pscluster_train_steps_total", "pscluster_train_windows_total", "pscluster_train_windows_per_second",
    "pscluster_train_loss", "pscluster_train_accuracy_ratio", "pscluster_train_f1_macro_ratio",
    "pscluster_train_epoch", "pscluster_train_planned_epochs", "pscluster_train_learning_rate_ratio",
    "pscluster_train_remaining_seconds", "pscluster_train_staleness_updates_count",
    "pscluster_train_step_seconds_count", "pscluster_worker_state", "pscluster_worker_departures_total",
}  # fmt: skip
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2) as running:
        own_recordings(running.folder / "mine.npz")
        yield running


@pytest.fixture(scope="module")
def mine(cluster: Cluster) -> str:
    return f"jobs.train.data.source={cluster.folder / 'mine.npz'}"


def test_metrics_during_a_training_and_what_an_interrupt_leaves(cluster: Cluster, mine: str) -> None:
    with cluster.begun("train", mine, *SMALL, ENDLESS, "jobs.train.validation_subjects=1") as job:
        job.until("epoch   2/")
        metrics = cluster.metrics_when(job, "pscluster_train_epoch", 2)
        job.interrupt()
        done = job.end()

    assert done.code == 130, done.errors
    result = done.result
    assert result["status"] == "cancelled"
    assert result["epochs_done"] >= 2
    assert 1 <= result["selected"]["epoch"] <= result["epochs_done"]
    assert result["updates"]["applied"] == result["updates"]["scheduled"] >= 30
    assert sum(map(sum, result["confusion"])) == 120
    assert done.folder is not None
    assert load(done.folder / "model").labels == ("0", "1", "2", "3")

    assert set(metrics) >= EXPORTED
    assert all(name.startswith("pscluster_") for name in metrics)
    assert metrics["pscluster_train_planned_epochs"] == {("coordinator", "0"): 100_000.0}
    assert sum(metrics["pscluster_train_steps_total"].values()) >= 30
    assert 0 <= metrics["pscluster_train_accuracy_ratio"]["coordinator", "validation", "0"] <= 1
    assert metrics["pscluster_train_loss"]["coordinator", "train", "0"] > 0
    for worker in ("0", "1"):
        states = {key[1]: value for key, value in metrics["pscluster_worker_state"].items() if key[2] == worker}
        assert sum(states.values()) == 1
        assert states["absent"] == 0


def test_an_interrupt_in_the_first_epoch_keeps_the_parameters_at_hand(cluster: Cluster, mine: str) -> None:
    with cluster.begun("train", mine, *SMALL, ENDLESS, "jobs.train.batch_size=4") as job:
        cluster.metrics_when(job, "pscluster_train_steps_total", 5)
        job.interrupt()
        done = job.end()
    assert done.code == 130, done.errors
    result = done.result
    if result["epochs_done"] == 0:  # else 75 steps were faster than one request
        assert result["selected"]["epoch"] == 0
        assert result["selected"]["accuracy"] is None
    assert result["updates"]["applied"] == result["updates"]["scheduled"] >= 5
    assert result["final"]["loss"] > 0
    assert done.folder is not None
    assert load(done.folder / "model").labels == ("0", "1", "2", "3")


def test_an_interrupt_before_anything_was_trained(cluster: Cluster, mine: str) -> None:
    with cluster.begun("train", mine, *SMALL, ENDLESS) as job:
        job.until("data:")
        job.interrupt()
        done = job.end()
    assert done.code == 130, done.errors
    result = done.result
    assert result["status"] == "cancelled"
    assert result["updates"]["scheduled"] == 0
    assert set(result["final"].values()) == set(result["wire"].values()) == {None}
    assert result["confusion"] is None
    assert done.folder is not None
    assert not (done.folder / "model").exists()


@pytest.mark.parametrize("job_name", ["evaluate", "pi"])
def test_an_interrupt_as_early_as_it_can_be_heard(cluster: Cluster, job_name: str) -> None:
    with cluster.begun(job_name) as job:
        job.until_it_listens()
        job.interrupt()
        done = job.end()
    assert done.code == 130, done.errors
    assert [line for line in done.errors.splitlines() if not line.startswith("live page: ")] == []
    assert done.result["status"] == "cancelled"
    assert done.result.get("samples", 0) == done.result.get("evaluated_windows", 0) == 0


def test_a_worker_killed_during_training_costs_time_and_no_update() -> None:
    with cluster_of(workers=2) as own:
        mine = f"jobs.train.data.source={own_recordings(own.folder / 'mine.npz')}"
        with own.begun("train", mine, *SMALL, "jobs.train.epochs=20", "jobs.train.validation_subjects=0") as job:
            job.until("epoch   2/")
            own.kill("worker:1")
            done = job.end()
        assert done.code == 0, done.errors
        result = done.result
        assert result["status"] == "done"
        assert result["epochs_done"] == 20
        assert result["updates"]["scheduled"] == result["updates"]["applied"] == 20 * 20
        assert sum(map(sum, result["confusion"])) == 120
        assert "worker:1 left" in done.log
