"""The job `cv` in this process: who is held out, and how a run goes on."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.jobs import cv, session
from cluster.jobs.cancel import Cancel
from cluster.jobs.checkpointing import RunKeeper
from cluster.jobs.cv import CrossValidationRun
from cluster.jobs.sources import load_dataset
from core.data import Dataset
from tests.cluster.jobs.cluster import SMALL
from tests.cluster.jobs.kit import Result, conducted, with_recordings

SETTINGS = (
    *SMALL,
    "jobs.train.mode=single",
    "jobs.train.slots=2",
    "jobs.train.epochs=2",
    "jobs.cv.folds=2",
    "jobs.cv.seeds=[0, 3]",
)


@pytest.fixture
def readable(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every account can enter.

    Of prepared files in others all jobs of root share one copy, which this test would cut off under
    somebody else's workers.
    """
    with tempfile.TemporaryDirectory(prefix="pscluster-cv-") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("XDG_CACHE_HOME", f"{folder}/cache")
        yield Path(folder)


def folds(run: Path) -> list[dict[str, Any]]:
    """Without the seconds, which no two runs share."""
    return [{**fold, "seconds": 0} for fold in json.loads((run / "cv.json").read_text())["folds"]]


def without_its_test_rows(dataset: Dataset) -> Dataset:
    """Cut the files off where the test set begins."""
    for array in dataset.arrays:
        with (dataset.folder / array.file).open("r+b") as file:
            file.truncate(dataset.train_windows * array.example_bytes)
    return dataset


def is_whole(result: Result, expected: Any, folder: Path) -> None:
    """The result of a run of two folds with two seeds has each of them."""
    (busy,) = result["busy"]["tasks"]
    assert (busy["task"], busy["computes"]) == ("coordinator:0", True)
    assert 0 < busy["cpu_seconds"] <= result["busy"]["seconds"] * busy["cores"] * 1.05
    assert [(fold["seed"], fold["fold"]) for fold in expected] == [(0, 0), (0, 1), (3, 0), (3, 1)]
    people = [sorted(group["group"] for group in fold["groups"]) for fold in expected]
    everybody = set(np.load(folder / "mine.npz")["subject_train"].tolist())
    assert sorted(people[0] + people[1]) == sorted(everybody)
    assert people[:2] == people[2:], "every seed has the same folds"
    for fold in expected:
        right, windows = (
            sum(group[name] for group in fold["groups"]) for name in ("right", "windows")
        )
        assert fold["windows"] == windows == np.sum(fold["confusion"])
        assert fold["figures"]["accuracy"] == pytest.approx(right / windows), "of all together"
    assert len({fold["parameters_sha256"] for fold in expected}) == 4
    accuracies = [fold["figures"]["accuracy"] for fold in expected]
    assert result["summary"]["mean"] == pytest.approx(np.mean(accuracies))


def test_no_byte_of_the_test_set_is_needed_and_an_interrupted_run_goes_on(
    readable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test of this process may have begun to compute: TensorFlow's threads are what they are
    # then.
    monkeypatch.setattr(session, "one_thread_an_operation", lambda: None)
    described = with_recordings(readable, *SETTINGS)
    run, result = conducted(CrossValidationRun, described, readable)
    expected = folds(run)
    assert result["status"] == "done"
    is_whole(result, expected, readable)

    def load_and_cut(*words: Any) -> Dataset:
        dataset = load_dataset(*words)
        assert dataset.folder.is_relative_to(readable)
        return without_its_test_rows(dataset)

    monkeypatch.setattr(cv, "load_dataset", load_and_cut)
    keep = RunKeeper.keep
    kept = list[Path]()
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
        run, result = conducted(CrossValidationRun, described, readable, cancel)
    assert result["status"] == "cancelled"
    assert result["trainings"] == {"planned": 4, "done": 1}
    assert folds(run) == expected[:1]
    assert kept[0].parent == run / "folds" / "seed-0-fold-2"
    assert any(kept[0].glob("*.safetensors"))
    (run / "folds" / "seed-0-fold-1").mkdir()  # of a coordinator that died as it removed it
    again, result = conducted(CrossValidationRun, described, readable, resumed=run)
    assert (again, result["status"]) == (run, "done")
    assert folds(run) == expected, (
        "the same bits without the test set, and after an interruption within a fold"
    )
    assert not (run / "folds").exists()
