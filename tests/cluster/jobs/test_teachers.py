"""Who may teach whom: a model that has seen what its student holds out is refused, in one line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.jobs.teachers import KEPT, Teachers, model_of_fold
from cluster.jobs.train_result import load, store
from cluster.jobs.trained_on import TrainedOn, shown
from core.data import Dataset
from core.data.dataset import Array
from core.errors import UsageError
from core.models.network import build
from core.models.spectral import SpectralModel
from worker_node.recordings import Standardization

PEOPLE = np.repeat([3, 5, 8, 9], 10).astype(np.int32)
LABELS = ("a", "b", "c")


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    """Forty windows of four people."""
    arrays = {
        "windows.f32": np.random.default_rng(0).normal(size=(40, 16, 6)).astype("<f4"),
        "classes.i32": (np.arange(40) % 3).astype("<i4"),
        "subjects.i32": PEOPLE,
    }
    for name, array in arrays.items():
        array.tofile(tmp_path / name)
    inputs = Array("windows.f32", "float32", (16, 6))
    targets = Array("classes.i32", "int32", ())
    return Dataset("here", "here", "", tmp_path, LABELS, 40, 0, "5" * 64, inputs, targets)


@pytest.fixture
def run(data: Dataset, tmp_path: Path) -> Path:
    """A finished one with a model of the people 3 and 5."""
    made = finished(tmp_path / "runs" / "first")
    taught(data, made / "model", (3, 5))
    return made


def finished(run: Path, result: str = "done") -> Path:
    run.mkdir(parents=True, exist_ok=True)
    (run / "result.json").write_text(json.dumps({"status": result}))
    return run


def taught(data: Dataset, folder: Path, people: tuple[int, ...], seed: int = 0) -> Path:
    """A model of the windows of some people."""
    rows = rows_of(*people)
    model = SpectralModel(hidden=4 if seed == 0 else 8)
    network = build(model, window_steps=16, channels=6, classes=3)
    vector = network.initial(seed)
    known = (Standardization.of(data, rows), LABELS, data.sha256, TrainedOn.of(data, rows))
    store(folder, network, vector, *known)
    return folder


def rows_of(*people: int) -> Any:
    return np.flatnonzero(np.isin(PEOPLE, people))


def test_the_people_of_a_model_are_kept_with_it(data: Dataset, tmp_path: Path) -> None:
    model = load(taught(data, tmp_path / "run" / "model", (8, 3)))
    assert model.trained_on is not None
    assert (model.trained_on.groups, model.trained_on.windows) == ((3, 8), 20)
    assert model.dataset_sha256 == data.sha256


@pytest.mark.parametrize("people", [(3, 5), (3, 5, 8), (3, 5, 8, 9)])
def test_a_teacher_of_the_same_people_or_fewer_may_teach(
    data: Dataset, run: Path, people: tuple[int, ...]
) -> None:
    teachers = Teachers(run.name, run.parent, data)
    assert teachers.place_for(rows_of(*people), 0) == 0
    (teacher,) = teachers.taught_by
    np.testing.assert_array_equal(teacher.vector, load(run / "model").vector)
    assert teachers.describe()[0]["trained_on"] == [3, 5]


def test_a_teacher_who_has_seen_whom_the_student_holds_out_is_refused(
    data: Dataset, run: Path
) -> None:
    teachers = Teachers(str(run), run, data)
    with pytest.raises(UsageError, match="has seen group 5, which this training holds out") as said:
        teachers.place_for(rows_of(3, 8), 0)
    assert "\n" not in str(said.value)
    assert "validation_subjects" in str(said.value)


def test_each_fold_has_its_own_teacher(data: Dataset, tmp_path: Path) -> None:
    run = finished(tmp_path / "cv")
    folds = ((5, 8, 9), (3, 8, 9), (3, 5, 9), (3, 5, 8))
    for seed in (0, 4):
        for number, people in enumerate(folds):
            taught(data, run / "models" / model_of_fold(seed, number), people, seed)
    teachers = Teachers(str(run), tmp_path, data)
    students = [(seed, people) for seed in (4, 0, 7) for people in folds[:2]]
    found = [teachers.place_for(rows_of(*people), seed) for seed, people in students]
    assert found == [0, 1, 2, 3, 2, 3], "of the same seed, else of the first"
    names = ["seed-4-fold-1", "seed-4-fold-2", "seed-0-fold-1", "seed-0-fold-2"]
    assert [entry["name"] for entry in teachers.describe()] == names
    with pytest.raises(UsageError, match=r"cross-validate the teacher with the same jobs.cv.folds"):
        teachers.place_for(rows_of(3, 8), 0)


def test_a_resumed_run_goes_on_with_its_own_copies(
    data: Dataset, run: Path, tmp_path: Path
) -> None:
    student = finished(tmp_path / "student", "cancelled")
    first = Teachers(str(run), tmp_path, data)
    first.place_for(rows_of(3, 5), 0)
    first.keep(student)
    taught(data, run / "model", (3, 5), seed=9)  # trained again meanwhile
    again = Teachers(str(run), tmp_path, data, student)
    again.place_for(rows_of(3, 5), 0)
    np.testing.assert_array_equal(again.taught_by[0].vector, first.taught_by[0].vector)
    assert [path.name for path in (student / KEPT).iterdir()] == ["model"]
    assert not list(student.glob(".*"))


def without(key: str, folder: Path) -> None:
    path = folder / "model.json"
    content = json.loads(path.read_text())
    del content[key]
    path.write_text(json.dumps(content))


def test_what_cannot_teach_is_refused_in_one_line(data: Dataset, run: Path) -> None:
    def said(named: str, **other: Any) -> str:
        with pytest.raises(UsageError) as caught:
            Teachers(named, run.parent, replace(data, **other))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "found neither nowhere nor" in said("nowhere")
    finished(run.parent / "empty")
    assert "has no model that could teach" in said("empty")
    finished(run, "cancelled")
    assert "expected a finished run" in said("first")
    finished(run)
    assert "other recordings than here" in said("first", sha256="6" * 64)
    shapes = "windows of 16 x 6 of the classes a, b, c; here has 16 x 6 of x, y, z"
    assert shapes in said("first", labels=("x", "y", "z"))
    without("trained_on", run / "model")
    assert "does not say whose windows" in said("first")
    without("labels", run / "model")
    assert "jobs.train.distill.run" in said("first")


def test_without_people_the_rows_have_to_be_the_same(data: Dataset, tmp_path: Path) -> None:
    np.full(40, -1, "<i4").tofile(tmp_path / "subjects.i32")
    one, other, every = (TrainedOn.of(data, np.array(rows)) for rows in ([1, 2], [2, 3], range(40)))
    assert (one.groups, one.beyond(other), one.beyond(one)) == ((), "windows", "")
    assert every.beyond(one) == "windows"
    record = {"groups": [], "windows": 2, "rows_sha256": one.rows_sha256}
    assert TrainedOn.read(record) == one


@pytest.mark.parametrize(
    "content",
    [
        {},
        [],
        {"groups": 3, "windows": 1, "rows_sha256": ""},
        {"groups": ["x"], "windows": -1},
    ],
)
def test_a_record_that_is_none_is_refused(content: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        TrainedOn.read(content)


def test_many_groups_are_counted() -> None:
    assert shown(range(9)) == "groups 0, 1, 2, 3, 4, 5 and 3 more"
    assert (shown([7]), shown([])) == ("group 7", "")
