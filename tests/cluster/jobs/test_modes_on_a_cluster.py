"""Every mode trains to its end on a real cluster, with what is special to it."""

import numpy as np
import pytest

from cluster.jobs.train_result import load
from tests.cluster.jobs.cluster import Cluster, Done

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

BATCHES = 20


def trained(cluster: Cluster, *words: str, epochs: int = 4) -> Done:
    """Trained to the end, each update applied once."""
    done = cluster.train(f"epochs={epochs}", "validation_subjects=0", *words)
    assert done.updates
    assert done.result["epochs_done"] == epochs
    return done


@pytest.mark.parametrize("mode", ["async", "sync", "single"])
def test_a_refit_trains_once_more_on_everybody_also_with_repeated_batches(
    two_servers: Cluster, mode: str
) -> None:
    words = ("refit=true", "validation_subjects=[2]", "replay_worst_batches=3")
    done = trained(two_servers, f"mode={mode}", *words, epochs=2)
    assert done.result["refit"] is True
    assert done.updates == 2 * (15 + 3) + 2 * (BATCHES + 3)
    assert mode == "async" or done.result["staleness"]["maximum"] == 0
    assert [event["stage"] for event in done.epochs] == ["train", "train", "refit", "refit"]
    of_all = np.load(two_servers.mine)["x_train"].mean((0, 1))
    mean = load(done.run / "model").standardization.mean
    np.testing.assert_allclose(mean, of_all, atol=1e-5)


@pytest.mark.parametrize("codec", ["{name: fp16}", "{name: topk, density: 0.1, momentum: 0.0}"])
def test_the_figures_are_those_of_the_stored_model_to_the_bit(
    two_servers: Cluster, codec: str
) -> None:
    """With `fp16` they used to be those of rounded parameters."""
    done = trained(two_servers, f"codec={codec}", epochs=2)
    again = two_servers.job(
        "evaluate", *two_servers.settings(f"jobs.evaluate.run={done.run}"), code=0
    )
    for key in ("parameters_sha256", "final", "confusion"):
        assert again.result[key] == done.result[key]


@pytest.mark.parametrize("mode", ["async", "local"])
def test_a_worker_that_is_killed_takes_what_it_kept_along_and_the_result_says_so(
    two_servers: Cluster, mode: str
) -> None:
    words = (f"mode={mode}", "epochs=12", "validation_subjects=0", "local.steps=2")
    topk = "codec={name: topk, density: 0.1, momentum: 0.0}"
    with two_servers.held(25, 75, words=(*words, topk)) as job:
        run = job.folder()
        assert run is not None
        log = run / "coordinator.log"
        two_servers.replace("worker:1")
        job.let_go(25)
        job.until_held(75)
        job.when(lambda: "worker:1 is back" in log.read_text())
        job.let_go(75)
        done = job.end(0)
    assert done.updates
    assert done.result["updates"]["memories_lost"] == 1
