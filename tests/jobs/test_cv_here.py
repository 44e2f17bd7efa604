"""The job `cv` in this process: who is held out, that the test set is never read, how a run goes on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.data import Dataset
from cluster.errors import UsageError
from cluster.inventory import Inventory, load
from cluster.inventory.templates import local_inventory
from cluster.jobs import cv, session
from cluster.jobs.cancel import Cancel
from cluster.jobs.checkpointing import RunKeeper
from cluster.jobs.cv import CrossValidationRun
from cluster.jobs.lifecycle import conduct
from cluster.jobs.progress import Display
from cluster.jobs.sources import load_dataset
from tests.jobs.cluster import SMALL, own_recordings

SETTINGS = (
    *SMALL, "jobs.train.mode=single", "jobs.train.micro_batches=2", "jobs.train.epochs=2", "jobs.cv.folds=2",
)  # fmt: skip


def inventory(folder: Path, *settings: str) -> Inventory:
    (folder / "inventory.yaml").write_text(local_inventory(1, 1))
    mine = folder / "mine.npz"
    if not mine.exists():
        own_recordings(mine)
    return load(folder / "inventory.yaml", [f"jobs.train.data.source={mine}", *SETTINGS, *settings])


def folds(run: Path) -> list[dict[str, Any]]:
    """Without the seconds, which no two runs share."""
    return [{**fold, "seconds": 0} for fold in json.loads((run / "cv.json").read_text())["folds"]]


def without_its_test_rows(dataset: Dataset) -> Dataset:
    """Cut the files off where the test set begins."""
    for array in dataset.arrays:
        with (dataset.folder / array.file).open("r+b") as file:
            file.truncate(dataset.train_windows * array.example_bytes)
    return dataset


def test_no_byte_of_the_test_set_is_needed_and_an_interrupted_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Another test of this process may have begun to compute: TensorFlow's threads are what they are then.
    monkeypatch.setattr(session, "one_thread_an_operation", lambda: None)
    described, runs, cancel = inventory(tmp_path, "jobs.cv.seeds=[0, 3]"), tmp_path / "runs", Cancel()
    path, result = conduct(CrossValidationRun(described, Display(quiet=True), cancel), runs, cancel)
    expected = folds(path.parent)
    assert result["status"] == "done"
    (busy,) = result["busy"]["tasks"]
    assert (busy["task"], busy["computes"]) == ("coordinator:0", True)
    assert 0 < busy["cpu_seconds"] <= result["busy"]["seconds"] * busy["cores"] * 1.05
    assert [(fold["seed"], fold["fold"]) for fold in expected] == [(0, 0), (0, 1), (3, 0), (3, 1)]
    people = [sorted(group["group"] for group in fold["groups"]) for fold in expected]
    assert sorted(people[0] + people[1]) == sorted(set(np.load(tmp_path / "mine.npz")["subject_train"].tolist()))
    assert people[:2] == people[2:], "every seed has the same folds"
    for fold in expected:
        right = sum(group["right"] for group in fold["groups"])
        assert fold["windows"] == sum(group["windows"] for group in fold["groups"]) == np.sum(fold["confusion"])
        assert fold["figures"]["accuracy"] == pytest.approx(right / fold["windows"]), "of all groups together"
    assert len({fold["parameters_sha256"] for fold in expected}) == 4
    assert result["summary"]["mean"] == pytest.approx(np.mean([fold["figures"]["accuracy"] for fold in expected]))

    load_all, keep, kept = load_dataset, RunKeeper.keep, list[Path]()
    monkeypatch.setattr(cv, "load_dataset", lambda *words: without_its_test_rows(load_all(*words)))
    cancel = Cancel()

    def in_the_second_fold(keeper: RunKeeper) -> bool:
        return keeper._store.folder.parent.name == "seed-0-fold-2"

    def keep_and_stop(keeper: RunKeeper) -> None:
        keep(keeper)
        kept.append(keeper._store.folder)
        cancel._asked.set()  # after the first of two epochs

    with monkeypatch.context() as changed:
        changed.setattr(RunKeeper, "due", in_the_second_fold)
        changed.setattr(RunKeeper, "keep", keep_and_stop)
        path, result = conduct(CrossValidationRun(described, Display(quiet=True), cancel), runs, cancel)
    assert result["status"] == "cancelled"
    assert result["trainings"] == {"planned": 4, "done": 1}
    assert folds(path.parent) == expected[:1]
    run, cancel = path.parent, Cancel()
    assert kept[0].parent == run / "folds" / "seed-0-fold-2"
    assert any(kept[0].glob("*.safetensors"))
    (run / "folds" / "seed-0-fold-1").mkdir()  # of a coordinator that died as it removed it
    path, result = conduct(CrossValidationRun(described, Display(quiet=True), cancel, run), runs, cancel, run)
    assert path.parent == run
    assert result["status"] == "done"
    assert folds(run) == expected, "the same bits without the test set, and after an interruption within a fold"
    assert not (run / "folds").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("jobs.cv.folds=9",), "jobs.cv.folds: expected 2 to 4, one for each group"),
        (("jobs.train.early_stopping={patience: 2}",), "jobs.train.early_stopping: cross-validation holds out"),
        (("jobs.train.class_weights=balanced",), "jobs.train.class_weights: balanced counts"),
        (("jobs.train.mode=async", "jobs.train.codec={name: topk}"), "jobs.train.codec: topk keeps on each worker"),
        (("jobs.train.mode=allreduce",), "jobs.train.mode: allreduce holds the parameters on the workers"),
        (("jobs.train.device.kind=gpu",), "expected 1 gpu on this machine"),
        (("jobs.train.batch_size=399",), "jobs.train.batch_size"),
    ],
)
def test_what_cannot_be_cross_validated_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], words: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cancel = Cancel()
    with pytest.raises(UsageError, match=words):
        conduct(
            CrossValidationRun(inventory(tmp_path, *settings), Display(quiet=True), cancel), tmp_path / "runs", cancel
        )
    assert not (tmp_path / "runs").exists()
