"""`train` and `evaluate` as a user runs them, with somebody's own recordings."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from core.engine.environment import KNOWN
from core.inventory.slots import slots_in_library
from tests.cluster.conftest import Pool
from tests.cluster.jobs.cluster import Cluster, Done
from tests.tables import table

EPOCHS = 8


@pytest.fixture(scope="module")
def trained(clusters: Pool) -> Done:
    """A convolutional network of more than 20,000 parameters, after EPOCHS epochs."""
    return clusters(2, 1).train(
        "model={name: conv-lstm, filters: 16, hidden: 48, layers: 1}",
        f"epochs={EPOCHS}",
        "validation_subjects=1",
        "optimizer.learning_rate=0.01",
    )


@pytest.fixture(scope="module")
def result(trained: Done) -> dict[str, Any]:
    return trained.result


def test_ends_well_and_says_where_the_result_is(trained: Done) -> None:
    assert trained.output == f"result: {trained.run / 'result.json'}\n"
    assert f"epoch   {EPOCHS}/{EPOCHS}" in trained.errors
    assert not any(known.decode() in trained.errors for known in KNOWN)
    assert "epoch   1/" in trained.log
    assert "Traceback" not in trained.log


def test_the_result_has_every_key_with_a_value_that_makes_sense(result: dict[str, Any]) -> None:
    contract = table("cluster/jobs/results")
    for section, keys in contract["keys"].items():
        present = result[section] if section else result
        assert set(keys.split()) <= set(present), section
    expected = contract["values"]
    assert {key: result[key] for key in expected} == expected
    assert result["epochs_done"] == EPOCHS
    assert result["dataset"] == {**result["dataset"], **contract["dataset"]}
    assert result["settings"]["slots"] == "auto"
    assert result["slots"] == asdict(slots_in_library(20, batch_norm=False))
    assert result["arithmetic"]["name"] == "library"
    assert 0 < result["throughput"]["step_seconds_p50"] < result["elapsed_seconds"]
    assert result["throughput"]["windows_per_second"] > 0
    assert 0 <= result["staleness"]["mean"] <= result["staleness"]["maximum"]


def test_it_learned(result: dict[str, Any]) -> None:
    final = result["final"]
    assert final["accuracy"] > 0.6  # guessing is 0.25
    assert abs(final["f1_macro"] - final["accuracy"]) < 0.2
    confusion = np.array(result["confusion"])
    assert confusion.sum(1).tolist() == [30, 30, 30, 30], "every test window"
    assert np.trace(confusion) / 120 == pytest.approx(final["accuracy"])


def test_the_history_has_one_line_an_epoch_of_which_the_best_is_selected(trained: Done) -> None:
    events = trained.epochs
    assert [event["epoch"] for event in events] == list(range(1, EPOCHS + 1))
    assert {event["stage"] for event in events} == {"train"}
    assert min(event["loss"] for event in events) > 0
    assert min(event["rate"] for event in events) > 0
    best = trained.best
    selected = trained.result["selected"]
    assert (selected["epoch"], selected["accuracy"]) == (
        best["epoch"],
        best["validation"]["accuracy"],
    )


def test_evaluate_finds_the_same_figures(cluster: Cluster, trained: Done) -> None:
    settings = cluster.settings(f"jobs.evaluate.run={trained.run}")
    done = cluster.job("evaluate", *settings, flags=["--json", "--quiet"], code=0)
    where = f"{done.run}/result.json"
    assert done.errors == f"result: {where}\n"
    found = done.result
    assert json.loads(done.output) == {**found, "result_path": where}
    for key in ("confusion", "parameters_sha256", "dataset"):
        assert found[key] == trained.result[key], key
    assert found["final"] == pytest.approx(trained.result["final"])
    assert found["evaluated_windows"] == 120
