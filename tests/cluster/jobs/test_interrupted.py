"""What is left of a job that is interrupted."""

import pytest

from cluster.jobs.train_result import load
from tests.cluster.jobs.cluster import Cluster, Done

ENDLESS = "epochs=100000"
pytestmark = pytest.mark.long


def kept_a_model(done: Done) -> bool:
    return load(done.run / "model").labels == ("0", "1", "2", "3")


def test_metrics_during_a_training_and_what_an_interrupt_leaves(cluster: Cluster) -> None:
    with cluster.training(ENDLESS, "validation_subjects=1") as job:
        job.until("epoch   2/")
        metrics = cluster.metrics_when(job, "pscluster_train_epoch", 2)
        done = job.cancelled()

    result = done.result
    assert result["epochs_done"] >= 2
    assert 1 <= result["selected"]["epoch"] <= result["epochs_done"]
    assert done.updates >= 30
    assert sum(map(sum, result["confusion"])) == 120
    assert kept_a_model(done)

    assert all(name.startswith("pscluster_") for name in metrics)
    assert metrics["pscluster_train_planned_epochs"] == {("coordinator", "0"): 100_000.0}
    assert sum(metrics["pscluster_train_steps_total"].values()) >= 30
    assert 0 <= metrics["pscluster_train_accuracy_ratio"]["coordinator", "validation", "0"] <= 1
    assert metrics["pscluster_train_loss"]["coordinator", "train", "0"] > 0
    states = metrics["pscluster_worker_state"]
    assert sorted(key[2] for key, holds in states.items() if holds) == ["0", "1"]
    assert not any(holds for key, holds in states.items() if key[1] == "absent")


def test_an_interrupt_in_the_first_epoch_keeps_the_parameters_at_hand(cluster: Cluster) -> None:
    with cluster.training(ENDLESS, "batch_size=4") as job:
        cluster.metrics_when(job, "pscluster_train_steps_total", 5)
        done = job.cancelled()
    result = done.result
    if result["epochs_done"] == 0:  # else 75 steps were faster than one request
        assert (result["selected"]["epoch"], result["selected"]["accuracy"]) == (0, None)
    assert done.updates >= 5
    assert result["final"]["loss"] > 0
    assert kept_a_model(done)


def test_an_interrupt_before_anything_was_trained(cluster: Cluster) -> None:
    with cluster.training(ENDLESS) as job:
        job.until("data:")
        done = job.cancelled()
    assert done.result["updates"]["scheduled"] == 0
    assert set(done.result["final"].values()) == set(done.result["wire"].values()) == {None}
    assert done.result["confusion"] is None
    assert not (done.run / "model").exists()


@pytest.mark.parametrize("job_name", ["evaluate", "pi"])
def test_an_interrupt_as_early_as_it_can_be_heard(cluster: Cluster, job_name: str) -> None:
    with cluster.begun(job_name) as job:
        job.until_it_listens()
        done = job.cancelled()
    assert [line for line in done.errors.splitlines() if not line.startswith("live page: ")] == []
    assert done.result.get("samples", 0) == done.result.get("evaluated_windows", 0) == 0
