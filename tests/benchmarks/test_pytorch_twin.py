"""The account of PyTorch's twin: figures, ratios of the same epochs, a kill between a checkpoint and its note."""

from typing import Any

import numpy as np
import pytest

from benchmarks.pytorch_twin.__main__ import _row, figures_of, folder_of, summary

RECIPE = {"epochs": 3, "dataset": "x"}
FINAL = {"final": {"accuracy": 0.9, "f1_macro": 0.8}, "parameters_sha256": "ab"}


def done(seconds: dict[str, float], final: dict[str, Any]) -> dict[str, Any]:
    return {
        "seconds": seconds, "losses": dict.fromkeys(seconds, 0.5), "final": final, "first_losses": [], "threads": 1,
    }  # fmt: skip


def test_figures_of_a_confusion_matrix_are_those_of_its_answers() -> None:
    confusion = [[8, 2, 0], [1, 9, 0], [0, 0, 0]]
    found = figures_of(confusion)
    assert found["accuracy"] == 17 / 20
    precision, recall = np.array([8 / 9, 9 / 11]), np.array([0.8, 0.9])
    f1 = 2 * precision * recall / (precision + recall)
    assert found["f1_macro"] == pytest.approx(f1.sum() / 3)


def test_times_are_compared_epoch_by_epoch_and_one_that_was_not_noted_is_left_out() -> None:
    ours = _row("ours single", done({"1": 2.0, "2": 4.0, "3": 2.0}, FINAL), RECIPE)
    torch = _row("pytorch", done({"1": 3.0, "3": 2.0}, {"confusion": [[1, 0], [0, 1]]}), RECIPE)
    assert (ours["train_seconds"], ours["epochs_without_a_time"]) == (8.0, 0)
    assert (torch["train_seconds"], torch["epochs_without_a_time"]) == (7.5, 1)
    assert torch["epoch_seconds"] == [3.0, None, 2.0]
    found = summary([{"seed": 0, **ours}, {"seed": 0, **torch}])
    assert found["pytorch"]["time_over_ours"] == 1.25
    assert found["pytorch"]["beside"] == "ours single"
    assert found["ours single"]["mean_accuracy"] == 0.9
    assert "beside" not in found["ours single"]


def test_other_settings_have_a_state_of_their_own() -> None:
    assert folder_of(32, 30, 0, []) == "h32-e30-seed0"
    names = {folder_of(32, 30, 0, [f"jobs.train.batch_size={size}"]) for size in (50, 100)}
    assert len(names | {"h32-e30-seed0"}) == 3
