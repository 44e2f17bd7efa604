"""PyTorch's twin: that it trains what we train, and the account of figures, ratios of the same epochs and kills."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from benchmarks.pytorch_twin.__main__ import _row, figures_of, folder_of, summary
from benchmarks.pytorch_twin.recipe import write_recipe
from cluster.asking import Asked
from cluster.inventory import load
from cluster.inventory.templates import local_inventory
from tests.habits import needs
from tests.inventory.cases import PROJECT
from tests.jobs.cluster import own_recordings

TORCH_PYTHON = os.environ.get("PSCLUSTER_TORCH_PYTHON") or (sys.executable if importlib.util.find_spec("torch") else "")
EPOCHS, HIDDEN = 2, 8
FAR, SHARED_FAR, ALMOST_ALL = 1e-3, 1e-4, 0.8
"""Of what training moved: how far parameters are apart that ought to be one, ours from PyTorch's and its own on two
processes from one. Of ours that holds for so many of each array (measured: 1e-4). The others are those of a unit whose
ReLU hardly ever opens: its gradients are of the order of Adam's epsilon, which divides them by themselves, so that
their rounding decides (measured: a third of what moved)."""
READ = """
import sys, numpy, torch
kept = torch.load(sys.argv[1], weights_only=True)["network"]
numpy.savez(sys.argv[2], **{name: value.numpy() for name, value in kept.items()})
"""
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


def trained_in_torch(folder: Path, processes: int) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """What each epoch answers, the test, and the parameters after the last one by PyTorch's names."""
    checkpoint, read = folder / f"{processes}.pt", folder / f"{processes}.npz"
    flags = [f"--recipe={folder / 'recipe.npz'}", f"--checkpoint={checkpoint}", f"--processes={processes}"]
    with Asked("pytorch", [TORCH_PYTHON, "-m", "benchmarks.pytorch_twin.in_torch", *flags], 100.0) as torch:
        epochs = [torch.ask({"epoch": True}) for _ in range(EPOCHS)]
        tested = torch.ask({"finish": True})
    subprocess.run([TORCH_PYTHON, "-c", READ, str(checkpoint), str(read)], check=True)
    return epochs, tested, dict(np.load(read))


def trained_by_us(folder: Path, settings: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The result of `single`, and the parameters by our names."""
    words = [word for one in [*settings, f"runs={folder / 'runs'}"] for word in ("--set", one)]
    command = [sys.executable, "-m", "cluster", "train", "--inventory", str(folder / "i.yaml"), "--quiet", *words]
    subprocess.run(command, check=True, cwd=PROJECT, capture_output=True)
    (run,) = folder.glob("runs/*-train")
    return json.loads((run / "result.json").read_text()), load_file(run / "model" / "weights.safetensors")


def by_our_names(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """PyTorch's parameters in our shapes: its kernels lie on their side, and input and state have one each."""
    found = {}
    for name in ours:
        *place, kind = name.split("/")
        if place == ["head"]:
            torch = "head."
        else:
            layer, cell, part = place
            torch = f"layers.{layer.removeprefix('layer')}.{cell.removeprefix('cell')}.0.{part}."
        if place[-1] == "lstm":
            both = np.concatenate([theirs[f"{torch}weight_ih_l0"], theirs[f"{torch}weight_hh_l0"]], 1).T
            found[name] = both if kind == "kernel" else theirs[f"{torch}bias_ih_l0"]
        else:
            found[name] = theirs[f"{torch}weight"].T if kind == "kernel" else theirs[f"{torch}bias"]
    return found


@pytest.mark.long
@pytest.mark.timeout(300)
def test_pytorch_alone_and_as_two_processes_trains_what_we_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.possible("" if TORCH_PYTHON else "PyTorch is not in the lock; PSCLUSTER_TORCH_PYTHON names an interpreter")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own_recordings(tmp_path / "mine.npz")
    (tmp_path / "i.yaml").write_text(local_inventory(1, 1))
    settings = [
        f"jobs.train.data.source={tmp_path / 'mine.npz'}", f"jobs.train.model.hidden={HIDDEN}",
        f"jobs.train.epochs={EPOCHS}", "jobs.train.batch_size=20", "jobs.train.micro_batches=2",
        "jobs.train.validation_subjects=0", "jobs.train.mode=single",
    ]  # fmt: skip
    recipe = write_recipe(load(tmp_path / "i.yaml", settings), tmp_path / "recipe.npz")
    assert recipe["windows_an_epoch"] == 400
    result, ours = trained_by_us(tmp_path, settings)
    alone, tested, one = trained_in_torch(tmp_path, 1)
    shared, _, two = trained_in_torch(tmp_path, 2)

    begun = dict(np.load(tmp_path / "recipe.npz"))
    found = by_our_names(one, ours)
    for name, value in ours.items():
        assert found[name].shape == value.shape
        moved = np.abs(value - begun[name]).max()
        assert moved > 0.01, f"{name} was trained"
        assert np.quantile(np.abs(found[name] - value), ALMOST_ALL) < FAR * moved, name
        assert np.abs(by_our_names(two, ours)[name] - found[name]).max() < SHARED_FAR * moved, name
    history = map(json.loads, next(tmp_path.glob("runs/*-train/history.jsonl")).read_text().splitlines())
    losses = [event["loss"] for event in history if event["event"] == "epoch"]
    assert [epoch["loss"] for epoch in alone] == pytest.approx(losses, rel=1e-5)
    assert [epoch["loss"] for epoch in shared] == pytest.approx(losses, rel=1e-5)
    assert figures_of(tested["confusion"])["accuracy"] == pytest.approx(result["final"]["accuracy"], abs=0.02)
