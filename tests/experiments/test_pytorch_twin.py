"""PyTorch's twin: that it trains what we train, and the account of figures, ratios of the same
epochs and kills."""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from core.asking import Asked
from core.inventory import load
from core.inventory.templates import local_inventory
from experiments.pytorch_twin.__main__ import _row, figures_of, folder_of
from experiments.pytorch_twin.recipe import write_recipe
from tests.cluster.jobs.cluster import own_recordings
from tests.habits import needs
from tests.ran import ran

EPOCHS = 2
HIDDEN = 8
FAR = 1e-3
SHARED_FAR = 1e-4
ALMOST_ALL = 0.8
"""Of what training moved: how far parameters are apart that ought to be one, ours from PyTorch's
and its own on two processes from one. Of ours that holds for so many of each array (measured:
1e-4). The others are those of a unit whose ReLU hardly ever opens: its gradients are of the order
of Adam's epsilon, which divides them by themselves, so that their rounding decides (measured: a
third of what moved)."""
READ = """
import sys, numpy, torch
kept = torch.load(sys.argv[1], weights_only=True)["network"]
numpy.savez(sys.argv[2], **{name: value.numpy() for name, value in kept.items()})
"""


def test_figures_of_a_confusion_matrix_are_those_of_its_answers() -> None:
    found = figures_of([[8, 2, 0], [1, 9, 0], [0, 0, 0]])
    f1 = 2 * 8 / (9 + 10) + 2 * 9 / (11 + 10)
    assert found["accuracy"] == 17 / 20
    assert found["f1_macro"] == pytest.approx(f1 / 3)


def test_times_are_compared_epoch_by_epoch_and_one_that_was_not_noted_is_left_out() -> None:
    def row(name: str, seconds: dict[str, float], final: dict[str, Any]) -> dict[str, Any]:
        losses = dict.fromkeys(seconds, 0.5)
        done = {"seconds": seconds, "losses": losses, "final": final}
        recipe = {"epochs": 3, "dataset": "x"}
        return _row(name, {**done, "first_losses": [], "threads": 1}, recipe)

    final = {"final": {"accuracy": 0.9, "f1_macro": 0.8}, "parameters_sha256": "ab"}
    ours = row("ours single", {"1": 2.0, "2": 4.0, "3": 2.0}, final)
    torch = row("pytorch", {"1": 3.0, "3": 2.0}, {"confusion": [[1, 0], [0, 1]]})
    assert (ours["train_seconds"], ours["epochs_without_a_time"]) == (8.0, 0)
    assert (torch["train_seconds"], torch["epochs_without_a_time"]) == (7.5, 1)
    assert torch["epoch_seconds"] == [3.0, None, 2.0]


def test_other_settings_have_a_state_of_their_own() -> None:
    assert folder_of(32, 30, 0, []) == "h32-e30-seed0"
    names = {folder_of(32, 30, 0, [f"jobs.train.batch_size={size}"]) for size in (50, 100)}
    assert len(names | {"h32-e30-seed0"}) == 3


def trained_in_torch(python: str, folder: Path, processes: int) -> tuple[list[Any], Any, Any]:
    """Return what each epoch answers, the test, and the last parameters by PyTorch's names."""
    checkpoint, read = folder / f"{processes}.pt", folder / f"{processes}.npz"
    words = [python, "-m", "experiments.pytorch_twin.in_torch"]
    words += [f"--recipe={folder / 'recipe.npz'}", f"--checkpoint={checkpoint}"]
    with Asked("pytorch", [*words, f"--processes={processes}"], 100.0) as torch:
        epochs = [torch.ask({"epoch": True}) for _ in range(EPOCHS)]
        tested = torch.ask({"finish": True})
    ran(python, "-c", READ, checkpoint, read)
    return epochs, tested, dict(np.load(read))


def trained_by_us(folder: Path, settings: list[str]) -> Path:
    """The run of a coordinator by itself."""
    words = ["-m", "cluster", "train", "--inventory", str(folder / "i.yaml"), "--quiet"]
    for setting in (*settings, f"runs={folder / 'runs'}"):
        words += ["--set", setting]
    ran(sys.executable, *words)
    (run,) = folder.glob("runs/*-train")
    return run


def by_our_names(theirs: Mapping[str, Any], ours: Iterable[str]) -> dict[str, Any]:
    """PyTorch's parameters in our shapes: its kernels lie on their side, and input and state have
    one each."""
    found = {}
    for name in ours:
        *place, kind = name.split("/")
        torch = "head."
        if place != ["head"]:
            layer, cell, part = place
            torch = f"layers.{layer.removeprefix('layer')}.{cell.removeprefix('cell')}.0.{part}."
        if place[-1] != "lstm":
            names = {"kernel": ["weight"], "bias": ["bias"]}
        else:
            names = {"kernel": ["weight_ih_l0", "weight_hh_l0"], "bias": ["bias_ih_l0"]}
        arrays = [theirs[f"{torch}{one}"].T for one in names.get(kind, names["bias"])]
        found[name] = np.concatenate(arrays)
    return found


@pytest.mark.long
@pytest.mark.timeout(300)
def test_pytorch_alone_and_as_two_processes_trains_what_we_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = needs.torch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own_recordings(tmp_path / "mine.npz")
    (tmp_path / "i.yaml").write_text(local_inventory(1, 1))
    settings = [
        f"jobs.train.data.source={tmp_path / 'mine.npz'}",
        f"jobs.train.model.hidden={HIDDEN}",
        f"jobs.train.epochs={EPOCHS}",
        "jobs.train.batch_size=20",
        "jobs.train.slots=2",
        "jobs.train.validation_subjects=0",
        "jobs.train.mode=single",
    ]
    recipe = write_recipe(load(tmp_path / "i.yaml", settings), tmp_path / "recipe.npz")
    assert recipe["windows_an_epoch"] == 400
    run = trained_by_us(tmp_path, settings)
    ours = load_file(run / "model" / "weights.safetensors")
    alone, tested, one = trained_in_torch(python, tmp_path, 1)
    shared, _, two = trained_in_torch(python, tmp_path, 2)

    begun = dict(np.load(tmp_path / "recipe.npz"))
    found, both = by_our_names(one, ours), by_our_names(two, ours)
    for name, value in ours.items():
        assert found[name].shape == value.shape
        moved = np.abs(value - begun[name]).max()
        assert moved > 0.01, f"{name} was trained"
        assert np.quantile(np.abs(found[name] - value), ALMOST_ALL) < FAR * moved, name
        assert np.abs(both[name] - found[name]).max() < SHARED_FAR * moved, name
    history = map(json.loads, (run / "history.jsonl").read_text().splitlines())
    losses = [event["loss"] for event in history if event["event"] == "epoch"]
    for epochs in (alone, shared):
        assert [epoch["loss"] for epoch in epochs] == pytest.approx(losses, rel=1e-5)
    accuracy = json.loads((run / "result.json").read_text())["final"]["accuracy"]
    assert figures_of(tested["confusion"])["accuracy"] == pytest.approx(accuracy, abs=0.02)
