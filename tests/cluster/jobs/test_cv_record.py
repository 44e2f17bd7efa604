"""`cv.json`: what it says together, what a resumed run finds in it, what it refuses."""

import json
from pathlib import Path

import pytest

from cluster.jobs.cv_record import CvRecord, FoldScore, GroupScore, names_of
from core.ground.errors import UsageError
from tests.tables import table

KEY = {"folds": 2, "seeds": [0, 1], "dataset_sha256": "ab"}


Groups = tuple[tuple[int, int, int], ...]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cv.json"


def score(seed: int, fold: int, accuracy: float | None, groups: Groups = ()) -> FoldScore:
    found = tuple(GroupScore(*group) for group in groups)
    figures = {"accuracy": accuracy, "loss": 0.5}
    return FoldScore(seed, fold, found, 10, 20, figures, ((1, 2), (3, 4)), "c0", 1.5)


def opened(path: Path, *scores: FoldScore, planned: int = 4, **key: object) -> CvRecord:
    record = CvRecord.load(path, {**KEY, **key}, planned)
    for each in scores:
        record.add(each)
    return record


def filled(path: Path) -> CvRecord:
    return opened(
        path,
        score(0, 0, 0.8, ((7, 10, 8),)),
        score(0, 1, 0.6, ((8, 5, 3),)),
        score(1, 0, 0.9, ((7, 10, 9),)),
        score(1, 1, 0.7, ((8, 5, 4),)),
    )


def test_means_and_spreads_are_over_seeds_and_over_folds(path: Path) -> None:
    found = filled(path).summary()
    assert found.pop("figure") == "accuracy"
    by_name = {name: pytest.approx(value) for name, value in found.items()}
    assert by_name == table("cluster/jobs/rows", "summary of cv.json")


def test_the_table_names_seeds_folds_and_the_hardest_group_first(path: Path) -> None:
    assert filled(path).table() == [
        "accuracy   seed 0  seed 1    mean   held out",
        "fold 1     0.8000  0.9000  0.8500   group 7",
        "fold 2     0.6000  0.7000  0.6500   group 8",
        "mean       0.7000  0.8000  0.7500   +- 0.1414 over folds, +- 0.0707 over seeds",
        "by group: 8 0.700  7 0.850",
    ]


def test_a_seed_that_has_not_trained_every_fold_does_not_move_the_mean(path: Path) -> None:
    record = opened(path, score(0, 0, 0.9), score(0, 1, 0.7), score(1, 0, 0.9))
    summary = record.summary()
    assert summary["mean"] == pytest.approx(0.8)
    assert summary["seeds"] == {"0": pytest.approx(0.8)}
    assert summary["spread_over_seeds"] is None
    assert record.table()[3] == "mean       0.8000       -  0.8000   +- 0.1414 over folds"


def test_the_first_folds_alone_are_no_value_of_a_seed(path: Path) -> None:
    record = opened(path, score(0, 0, 0.9), score(0, 1, 0.9), planned=3, folds=3, seeds=[0])
    assert record.summary()["seeds"] == {}
    record.add(score(0, 2, 0.6))
    assert record.summary()["seeds"] == {"0": pytest.approx(0.8)}


def test_a_task_without_accuracy_goes_by_its_loss(path: Path) -> None:
    record = opened(path, score(0, 0, None))
    assert record.summary()["figure"] == "loss"
    assert record.table()[1].split() == ["fold", "1", "0.5000", "0.5000"]


def test_what_is_done_is_found_again(path: Path) -> None:
    first = filled(path)
    again = opened(path)
    assert again.scores == first.scores
    assert again.complete
    assert again.has(1, 0)
    assert not again.has(2, 0)
    assert json.loads(path.read_text())["summary"] == first.summary()


@pytest.mark.parametrize(
    ("old", "new"),
    table("cluster/jobs/rows", "damages of cv.json"),
)
def test_a_damaged_record_is_refused_in_a_line(path: Path, old: str, new: str) -> None:
    filled(path)
    path.write_text(path.read_text().replace(old, new) if old else new)
    with pytest.raises(UsageError, match="start a new one without --resume") as caught:
        opened(path)
    assert "\n" not in str(caught.value)


def test_other_settings_are_refused_by_name(path: Path) -> None:
    filled(path)
    with pytest.raises(UsageError, match="folds was 2 and is 5"):
        opened(path, folds=5)


def test_many_groups_are_counted() -> None:
    groups = [GroupScore(number, 1, 1) for number in range(9)]
    assert names_of(groups) == "groups 0, 1, 2, 3, 4, 5 and 3 more"
    assert (names_of(groups[7:8]), names_of([])) == ("group 7", "")
