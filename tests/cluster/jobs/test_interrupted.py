"""What is left of a job that is interrupted."""

import pytest

from cluster.jobs.train_result import load
from tests.cluster.jobs.cluster import Cluster, Done

ENDLESS = "epochs=100000"
pytestmark = pytest.mark.long


def kept_a_model(done: Done) -> bool:
    return load(done.run / "model").labels == ("0", "1", "2", "3")


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
