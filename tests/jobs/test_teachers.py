"""Who may teach whom: a model that has seen what its student holds out is refused, in one line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.data import Dataset
from cluster.data.dataset import Array
from cluster.errors import UsageError
from cluster.jobs.teachers import KEPT, Teachers, model_of_fold
from cluster.jobs.train_result import load, store
from cluster.jobs.trained_on import TrainedOn, shown
from cluster.models.network import build
from cluster.models.spectral import SpectralModel
from worker_node.recordings import Standardization

PEOPLE = np.repeat([3, 5, 8, 9], 10).astype(np.int32)
LABELS = ("a", "b", "c")


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    """Forty windows of four people."""
    random = np.random.default_rng(0)
    random.normal(size=(40, 16, 6)).astype("<f4").tofile(tmp_path / "windows.f32")
    (np.arange(40) % 3).astype("<i4").tofile(tmp_path / "classes.i32")
    PEOPLE.astype("<i4").tofile(tmp_path / "subjects.i32")
    inputs, targets = Array("windows.f32", "float32", (16, 6)), Array("classes.i32", "int32", ())
    return Dataset("here", "here", "", tmp_path, LABELS, 40, 0, "5" * 64, inputs, targets)


def finished(run: Path, result: str = "done") -> Path:
    run.mkdir(parents=True, exist_ok=True)
    (run / "result.json").write_text(json.dumps({"status": result}))
    return run


def taught(data: Dataset, folder: Path, people: tuple[int, ...], seed: int = 0) -> Path:
    """A model of the windows of some people."""
    rows = rows_of(people)
    network = build(SpectralModel(hidden=4 if seed == 0 else 8), window_steps=16, channels=6, classes=3)
    folder.parent.mkdir(parents=True, exist_ok=True)
    store(
        folder, network, network.initial(seed), Standardization.of(data, rows), LABELS, data.sha256,
        TrainedOn.of(data, rows),
    )  # fmt: skip
    return folder


def rows_of(people: tuple[int, ...]) -> Any:
    return np.flatnonzero(np.isin(PEOPLE, people))


def test_the_people_of_a_model_are_kept_with_it(data: Dataset, tmp_path: Path) -> None:
    model = load(taught(data, tmp_path / "run" / "model", (8, 3)))
    assert model.trained_on is not None
    assert (model.trained_on.groups, model.trained_on.windows) == ((3, 8), 20)
    assert model.dataset_sha256 == data.sha256


def test_a_teacher_of_the_same_people_or_fewer_may_teach(data: Dataset, tmp_path: Path) -> None:
    run = finished(tmp_path / "runs" / "first")
    taught(data, run / "model", (3, 5))
    for people in ((3, 5), (3, 5, 8), (3, 5, 8, 9)):
        teachers = Teachers("first", tmp_path / "runs", data)
        assert teachers.place_for(rows_of(people), 0) == 0
        (teacher,) = teachers.taught_by
        np.testing.assert_array_equal(teacher.vector, load(run / "model").vector)
        assert teachers.describe()[0]["trained_on"] == [3, 5]


def test_a_teacher_who_has_seen_whom_the_student_holds_out_is_refused(data: Dataset, tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    taught(data, run / "model", (3, 5, 9))
    teachers = Teachers(str(run), tmp_path, data)
    with pytest.raises(UsageError, match=r"has seen groups 5, 9, which this training holds out") as caught:
        teachers.place_for(rows_of((3, 8)), 0)
    assert "\n" not in str(caught.value)
    assert "validation_subjects" in str(caught.value)


def test_each_fold_has_its_own_teacher(data: Dataset, tmp_path: Path) -> None:
    run, folds = finished(tmp_path / "cv"), ((5, 8, 9), (3, 8, 9), (3, 5, 9), (3, 5, 8))
    for seed in (0, 4):
        for number, people in enumerate(folds):
            taught(data, run / "models" / model_of_fold(seed, number), people, seed)
    teachers = Teachers(str(run), tmp_path, data)
    found = [teachers.place_for(rows_of(people), seed) for seed in (4, 0, 7) for people in folds[:2]]
    assert found == [0, 1, 2, 3, 2, 3], "of the same seed, else of the first"
    assert [entry["name"] for entry in teachers.describe()] == [
        "seed-4-fold-1", "seed-4-fold-2", "seed-0-fold-1", "seed-0-fold-2",
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"cross-validate the teacher with the same jobs.cv.folds"):
        teachers.place_for(rows_of((3, 8)), 0)


def test_a_resumed_run_goes_on_with_its_own_copies(data: Dataset, tmp_path: Path) -> None:
    run, student = finished(tmp_path / "first"), finished(tmp_path / "student", "cancelled")
    taught(data, run / "model", (3, 5))
    teachers = Teachers(str(run), tmp_path, data)
    teachers.place_for(rows_of((3, 5)), 0)
    teachers.keep(student)
    taught(data, run / "model", (3, 5), seed=9)  # trained again meanwhile
    again = Teachers(str(run), tmp_path, data, student)
    again.place_for(rows_of((3, 5)), 0)
    np.testing.assert_array_equal(again.taught_by[0].vector, teachers.taught_by[0].vector)
    assert [path.name for path in (student / KEPT).iterdir()] == ["model"]
    assert not list(student.glob(".*"))


def without(key: str, folder: Path) -> None:
    path = folder / "model.json"
    content = json.loads(path.read_text())
    del content[key]
    path.write_text(json.dumps(content))


def test_what_cannot_teach_is_refused_in_one_line(data: Dataset, tmp_path: Path) -> None:
    def said(named: Path | str, of: Dataset = data) -> str:
        with pytest.raises(UsageError) as caught:
            Teachers(str(named), tmp_path / "runs", of)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "found neither nowhere nor" in said("nowhere")
    assert "has no model that could teach" in said(finished(tmp_path / "empty"))
    run = finished(tmp_path / "run", "cancelled")
    folder = taught(data, run / "model", (3, 5))
    assert "expected a finished run" in said(run)
    finished(run)
    assert "other recordings than here" in said(run, replace(data, sha256="6" * 64))
    assert "windows of 16 x 6 of the classes a, b, c; here has 16 x 6 of x, y, z" in said(
        run, replace(data, labels=("x", "y", "z"))
    )
    without("trained_on", folder)
    assert "does not say whose windows" in said(run)
    without("labels", folder)
    assert "jobs.train.distill.run" in said(run)


def test_without_people_the_rows_have_to_be_the_same(data: Dataset, tmp_path: Path) -> None:
    np.full(40, -1, "<i4").tofile(tmp_path / "subjects.i32")
    one, other, every = (TrainedOn.of(data, np.array(rows)) for rows in ([1, 2], [2, 3], range(40)))
    assert (one.groups, one.beyond(other), one.beyond(one)) == ((), "windows", "")
    assert every.beyond(one) == "windows"
    assert TrainedOn.read(json.loads(json.dumps({"groups": [], "windows": 2, "rows_sha256": one.rows_sha256}))) == one


def test_a_record_that_is_none_is_refused() -> None:
    records: list[Any] = [{}, [], {"groups": 3, "windows": 1, "rows_sha256": ""}, {"groups": ["x"], "windows": -1}]
    for content in records:
        with pytest.raises((ValueError, KeyError, TypeError)):
            TrainedOn.read(content)


def test_many_groups_are_counted() -> None:
    assert shown(range(9)) == "groups 0, 1, 2, 3, 4, 5 and 3 more"
    assert (shown([7]), shown([])) == ("group 7", "")
