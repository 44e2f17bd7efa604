"""`train` and `evaluate` as a user runs them, with somebody's own recordings."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from cluster.engine.environment import KNOWN
from cluster.inventory.micro_batches import auto_micro_batches
from cluster.jobs.train_result import load
from cluster.metrics.processor import usable_cores
from tests.jobs.cluster import SMALL, Cluster, Done, cluster_of, own_recordings

CONTRACT = {
    "": "schema job status reason cluster mode workers ps seed dataset model settings micro_batches epochs_done refit "
    "final selected confusion updates resumptions wire throughput staleness calibration parameters_sha256 "
    "elapsed_seconds",
    "dataset": "name source sha256 train_windows test_windows channels window_steps labels task unit",
    "model": "name parameters hidden",
    "final": "accuracy f1_macro f1_weighted precision_macro recall_macro loss",
    "selected": "epoch accuracy f1_macro f1_weighted precision_macro recall_macro loss",
    "updates": "scheduled applied duplicates_dropped rolled_back memories_lost",
    "wire": "pull_bytes_per_step push_bytes_per_step packets_per_step",
    "throughput": "windows_per_second step_seconds_p50",
    "staleness": "mean maximum",
}
EPOCHS = 8


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2) as running:
        own_recordings(running.folder / "mine.npz")
        yield running


@pytest.fixture(scope="module")
def mine(cluster: Cluster) -> str:
    return f"jobs.train.data.source={cluster.folder / 'mine.npz'}"


@pytest.fixture(scope="module")
def trained(cluster: Cluster, mine: str) -> Done:
    """A convolutional network of more than 20,000 parameters, after EPOCHS epochs."""
    model = "jobs.train.model={name: conv-lstm, filters: 16, hidden: 48, layers: 1}"
    settings = ("jobs.train.batch_size=20", f"jobs.train.epochs={EPOCHS}", "jobs.train.validation_subjects=1")
    rate = "jobs.train.optimizer.learning_rate=0.01"
    return cluster.job("train", mine, model, *settings, rate)


def test_ends_well_and_says_where_the_result_is(trained: Done) -> None:
    assert trained.code == 0, trained.errors
    assert trained.folder is not None
    assert trained.output.splitlines() == [f"result: {trained.folder / 'result.json'}"]
    assert f"epoch   {EPOCHS}/{EPOCHS}" in trained.errors
    assert not any(known.decode() in trained.errors for known in KNOWN)
    assert "epoch   1/" in trained.log
    assert "Traceback" not in trained.log


def test_the_result_has_every_key_with_a_value_that_makes_sense(trained: Done) -> None:
    result = trained.result
    for section, keys in CONTRACT.items():
        present = result[section] if section else result
        assert set(keys.split()) <= set(present), section
    assert (result["schema"], result["job"], result["status"], result["mode"]) == (1, "train", "done", "async")
    assert (result["workers"], result["ps"], result["seed"], result["reason"]) == (2, 1, 0, None)
    assert result["dataset"]["train_windows"] == 400
    assert result["dataset"]["test_windows"] == 120
    assert (result["dataset"]["channels"], result["dataset"]["window_steps"]) == (6, 64)
    assert result["settings"]["micro_batches"] == "auto"
    cores = [max(1, usable_cores() // 2)] * 2
    assert result["micro_batches"] == asdict(auto_micro_batches("async", 20, 2, cores)), (
        "two workers share this machine"
    )
    assert result["epochs_done"] == EPOCHS
    assert 1 <= result["selected"]["epoch"] <= EPOCHS
    assert 0 < result["throughput"]["step_seconds_p50"] < result["elapsed_seconds"]
    assert result["throughput"]["windows_per_second"] > 0
    assert 0 <= result["staleness"]["mean"] <= result["staleness"]["maximum"]


def test_it_learned(trained: Done) -> None:
    final = trained.result["final"]
    assert final["accuracy"] > 0.6  # guessing is 0.25
    assert abs(final["f1_macro"] - final["accuracy"]) < 0.2


def test_every_update_was_applied_once(trained: Done) -> None:
    # One of four subjects is held out: 300 windows are 15 batches of 20.
    assert trained.result["updates"] == {
        "scheduled": EPOCHS * 15, "applied": EPOCHS * 15, "duplicates_dropped": 0, "rolled_back": 0,
        "memories_lost": 0,
    }  # fmt: skip


def test_the_confusion_matrix_counts_every_test_window(trained: Done) -> None:
    confusion = np.array(trained.result["confusion"])
    assert confusion.shape == (4, 4)
    assert confusion.sum(1).tolist() == [30, 30, 30, 30]
    assert np.trace(confusion) / 120 == pytest.approx(trained.result["final"]["accuracy"])


def test_bytes_on_the_wire_are_one_pull_and_one_push(trained: Done) -> None:
    parameters = trained.result["model"]["parameters"]
    assert parameters > 20_000
    wire = trained.result["wire"]
    total = wire["pull_bytes_per_step"] + wire["push_bytes_per_step"]
    assert total == pytest.approx(2 * 4 * parameters, rel=0.1)


def test_the_history_has_one_line_an_epoch(trained: Done) -> None:
    events = trained.epochs
    assert [event["epoch"] for event in events] == list(range(1, EPOCHS + 1))
    assert all(event["stage"] == "train" and event["loss"] > 0 and event["rate"] > 0 for event in events)
    best = max(events, key=lambda event: float(event["validation"]["accuracy"]))
    assert trained.result["selected"]["epoch"] == best["epoch"]
    assert trained.result["selected"]["accuracy"] == best["validation"]["accuracy"]


def test_the_model_loads_without_a_cluster(trained: Done) -> None:
    assert trained.folder is not None
    model = load(trained.folder / "model")
    assert model.labels == ("0", "1", "2", "3")
    assert hashlib.sha256(model.vector.tobytes()).hexdigest() == trained.result["parameters_sha256"]
    assert load_file(trained.folder / "model" / "weights.safetensors")


def test_evaluate_finds_the_same_figures(cluster: Cluster, mine: str, trained: Done) -> None:
    done = cluster.job("evaluate", mine, f"jobs.evaluate.run={trained.folder}", flags=["--json", "--quiet"])
    assert done.code == 0, done.errors
    assert done.errors.splitlines() == [f"result: {done.folder}/result.json"]
    printed = json.loads(done.output)
    assert printed.pop("result_path") == f"{done.folder}/result.json"
    assert printed == done.result
    for key in ("confusion", "parameters_sha256", "dataset"):
        assert done.result[key] == trained.result[key], key
    assert done.result["final"] == pytest.approx(trained.result["final"])
    assert done.result["evaluated_windows"] == 120


@pytest.mark.parametrize("rate", [pytest.param("1e6", marks=pytest.mark.long), "1e9"])
def test_divergence_names_the_update_and_the_learning_rate(cluster: Cluster, mine: str, rate: str) -> None:
    optimizer = f"jobs.train.optimizer={{name: sgd, learning_rate: {float(rate)}}}"
    constant = "jobs.train.schedule={name: constant}"
    done = cluster.job("train", mine, *SMALL, optimizer, constant, "jobs.train.epochs=3", flags=["--quiet"])
    assert done.code == 1
    (line,) = done.errors.splitlines()
    assert "update" in line
    assert f"{float(rate):.3g}" in line
    assert "lower jobs.train.optimizer.learning_rate" in line
    assert done.result["status"] == "failed"
    assert done.result["reason"] == line
    assert done.result["updates"]["scheduled"] > 0
    assert done.result["final"]["accuracy"] is None


def test_the_thesis_recipe_trains(cluster: Cluster, mine: str) -> None:
    network = ("jobs.train.model.hidden=16", "jobs.train.model.n_layers_in_highway=2")
    recipe = ("jobs.train.recipe=thesis", *network, "jobs.train.batch_size=50")
    done = cluster.job("train", mine, *recipe, "jobs.train.epochs=2", "jobs.train.validation_subjects=0")
    assert done.code == 0, done.errors
    result = done.result
    assert result["model"]["batch_norm"] is True
    assert result["model"]["statistics"] > 0
    assert result["settings"]["keep_probability"] == 0.85
    # 8 batches of 50, and the five worst of them again
    assert result["updates"]["scheduled"] == result["updates"]["applied"] == 2 * 13
    assert result["selected"] == {"epoch": 2, **dict.fromkeys(result["final"])}  # nothing was held out
    assert np.isfinite(result["final"]["loss"])


@pytest.mark.long
def test_refit_trains_once_more_on_everybody(cluster: Cluster, mine: str) -> None:
    settings = ("jobs.train.epochs=2", "jobs.train.refit=true", "jobs.train.validation_subjects=[2]")
    done = cluster.job("train", mine, *SMALL, *settings)
    assert done.code == 0, done.errors
    assert done.result["refit"] is True
    assert done.result["updates"]["scheduled"] == done.result["updates"]["applied"] == 2 * 15 + 2 * 20
    assert done.folder is not None
    assert [event["stage"] for event in done.epochs] == ["train", "train", "refit", "refit"]
    random = np.load(cluster.folder / "mine.npz")["x_train"]
    stored = load(Path(done.folder) / "model").standardization
    np.testing.assert_allclose(stored.mean, random.mean((0, 1)), atol=1e-5)  # of all windows, not of three subjects
