"""`cv.json`: what it says together, what a resumed run finds in it, what it refuses."""

import json
from pathlib import Path

import pytest

from cluster.errors import UsageError
from cluster.jobs.cv_record import CvRecord, FoldScore, GroupScore

KEY = {"folds": 2, "seeds": [0, 1], "dataset_sha256": "ab"}


def score(seed: int, fold: int, accuracy: float | None, groups: tuple[tuple[int, int, int], ...] = ()) -> FoldScore:
    found = tuple(GroupScore(*group) for group in groups)
    return FoldScore(seed, fold, found, 10, 20, {"accuracy": accuracy, "loss": 0.5}, ((1, 2), (3, 4)), "c0", 1.5)


def filled(path: Path) -> CvRecord:
    record = CvRecord.opened(path, KEY, 4)
    for seed, fold, accuracy, right in ((0, 0, 0.8, 8), (0, 1, 0.6, 3), (1, 0, 0.9, 9), (1, 1, 0.7, 4)):
        record.add(score(seed, fold, accuracy, ((7 + fold, 10 - 5 * fold, right),)))
    return record


def test_means_and_spreads_are_over_seeds_and_over_folds(tmp_path: Path) -> None:
    summary = filled(tmp_path / "cv.json").summary()
    assert summary["figure"] == "accuracy"
    assert summary["mean"] == pytest.approx(0.75)
    assert summary["seeds"] == {"0": pytest.approx(0.7), "1": pytest.approx(0.8)}
    assert summary["folds"] == {"0": pytest.approx(0.85), "1": pytest.approx(0.65)}
    assert summary["spread_over_seeds"] == pytest.approx(0.5**0.5 * 0.1)
    assert summary["spread_over_folds"] == pytest.approx(0.5**0.5 * 0.2)
    assert summary["groups"] == {"7": pytest.approx(17 / 20), "8": pytest.approx(7 / 10)}


def test_the_table_names_seeds_folds_and_the_hardest_group_first(tmp_path: Path) -> None:
    assert filled(tmp_path / "cv.json").table() == [
        "accuracy   seed 0  seed 1    mean   held out",
        "fold 1     0.8000  0.9000  0.8500   group 7",
        "fold 2     0.6000  0.7000  0.6500   group 8",
        "mean       0.7000  0.8000  0.7500   +- 0.1414 over folds, +- 0.0707 over seeds",
        "by group: 8 0.700  7 0.850",
    ]


def test_a_seed_that_has_not_trained_every_fold_does_not_move_the_mean(tmp_path: Path) -> None:
    record = CvRecord.opened(tmp_path / "cv.json", KEY, 4)
    for seed, fold, accuracy in ((0, 0, 0.9), (0, 1, 0.7), (1, 0, 0.9)):
        record.add(score(seed, fold, accuracy))
    summary = record.summary()
    assert summary["mean"] == pytest.approx(0.8)
    assert summary["seeds"] == {"0": pytest.approx(0.8)}
    assert summary["spread_over_seeds"] is None
    assert record.table()[3] == "mean       0.8000       -  0.8000   +- 0.1414 over folds"


def test_the_first_folds_alone_are_no_value_of_a_seed(tmp_path: Path) -> None:
    record = CvRecord.opened(tmp_path / "cv.json", {**KEY, "folds": 3, "seeds": [0]}, 3)
    for fold in (0, 1):
        record.add(score(0, fold, 0.9))
        assert record.summary()["seeds"] == {}
    record.add(score(0, 2, 0.6))
    assert record.summary()["seeds"] == {"0": pytest.approx(0.8)}


def test_a_task_without_accuracy_goes_by_its_loss(tmp_path: Path) -> None:
    record = CvRecord.opened(tmp_path / "cv.json", KEY, 2)
    record.add(score(0, 0, None))
    assert record.summary()["figure"] == "loss"
    assert record.table()[1].split() == ["fold", "1", "0.5000", "0.5000"]


def test_what_is_done_is_found_again(tmp_path: Path) -> None:
    first = filled(tmp_path / "cv.json")
    again = CvRecord.opened(tmp_path / "cv.json", KEY, 4)
    assert again.scores == first.scores
    assert again.complete
    assert again.has(1, 0)
    assert not again.has(2, 0)
    assert json.loads((tmp_path / "cv.json").read_text())["summary"] == first.summary()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"schema": 1', '"schema": 2'),
        lambda text: text.replace('"fold": 0', '"fold": "first"'),
        lambda text: text.replace('"folds": [', '"folds": 3, "was": ['),
        lambda text: "[]",
    ],
)
def test_a_damaged_record_is_refused_in_a_line(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "cv.json"
    filled(path)
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    with pytest.raises(UsageError, match="start a new one without --resume") as caught:
        CvRecord.opened(path, KEY, 4)
    assert "\n" not in str(caught.value)


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    filled(tmp_path / "cv.json")
    with pytest.raises(UsageError, match="folds was 2 and is 5"):
        CvRecord.opened(tmp_path / "cv.json", {**KEY, "folds": 5}, 10)
