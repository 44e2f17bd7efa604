"""Anybody's examples in the store: arrays, lists, iterators; every wrong one is a line, and nothing is half written."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.data import Dataset, open_prepared
from cluster.data.examples import Batch, Data, batches_of, write_examples
from cluster.errors import DataError

import tensorflow as tf  # isort: skip

RANDOM = np.random.default_rng(3)
IMAGES = RANDOM.integers(0, 255, (30, 5, 4, 3), np.uint8)
CLASSES = np.arange(30) % 3


def data(**changes: Any) -> Data:
    whole = {"x_train": IMAGES[:20], "y_train": CLASSES[:20], "x_test": IMAGES[20:], "y_test": CLASSES[20:]}
    return Data(**{**whole, **changes})


def written(given: Any, cache: Path, task: str = "classification", **more: Any) -> Dataset:
    batches, labels = batches_of(given, task)
    return write_examples(batches, cache, name="mine", source="data()", task=task, labels=labels, **more)


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [("uint8", "uint8"), ("float64", "float32"), (">f4", "float32"), ("float16", "float16"), ("int64", "int64"),
     ("bool", "uint8"), ("uint32", "int64"), ("int16", "int16")],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (7,), (5, 4, 3), (2, 2, 2, 2)])
def test_any_rank_and_dtype_comes_back_as_it_was(
    tmp_path: Path, dtype: str, stored: str, shape: tuple[int, ...]
) -> None:
    x = RANDOM.integers(0, 2, (30, *shape)).astype(dtype)
    dataset = written(data(x_train=x[:20], x_test=x[20:]), tmp_path)
    assert (dataset.inputs.dtype, dataset.input_shape) == (stored, shape)
    np.testing.assert_array_equal(dataset.windows(), x.astype(stored))
    np.testing.assert_array_equal(dataset.classes(), CLASSES)
    assert (dataset.outputs, dataset.labels, dataset.task) == (3, ("0", "1", "2"), "classification")
    assert (dataset.train_windows, dataset.test_windows) == (20, 10)
    assert open_prepared(dataset.folder) == dataset


def test_the_same_content_is_one_folder_and_an_iterator_gives_it_too(tmp_path: Path) -> None:
    def pairs(part: slice) -> Iterator[tuple[Any, Any]]:
        yield from zip(IMAGES[part], CLASSES[part], strict=True)

    def batches() -> Iterator[Batch]:
        yield Batch(IMAGES[20:26], CLASSES[20:26], test=True)
        yield Batch(IMAGES[:15], CLASSES[:15])
        yield Batch(IMAGES[26:], CLASSES[26:], test=True)
        yield Batch(IMAGES[15:20], CLASSES[15:20])

    first = written(data(), tmp_path)
    for given in (
        vars(data()),
        data(x_train=list(IMAGES[:20]), y_train=CLASSES[:20].tolist(), x_test=tf.constant(IMAGES[20:])),
        {"x_train": pairs(slice(20)), "x_test": pairs(slice(20, None))},
        Data(batches()),
    ):
        assert written(given, tmp_path) == first
    assert [path.name for path in tmp_path.iterdir()] == [first.folder.name]


def test_windows_of_classes_keep_their_names_and_all_else_has_those_of_its_dtype(tmp_path: Path) -> None:
    x = RANDOM.normal(size=(30, 16, 3))
    motion = written(data(x_train=x[:20], x_test=x[20:]), tmp_path, standardized=True)
    assert motion.files == ("windows.f32", "classes.i32", "subjects.i32", "manifest.json")
    assert (motion.window_steps, motion.channels, motion.holds_windows) == (16, 3, True)
    weighted = written(data(weights=np.arange(20.0)), tmp_path)
    assert weighted.files == ("inputs.uint8", "targets.int32", "subjects.i32", "weights.f32", "manifest.json")
    assert weighted.weights is not None
    assert weighted.mapped(weighted.weights).tolist() == [*range(20), *[1] * 10]
    assert sorted(path.name for path in weighted.folder.iterdir()) == sorted(weighted.files)


def test_text_classes_are_numbered_and_named(tmp_path: Path) -> None:
    words = np.array(["cat", "bee", "ape"])[CLASSES]
    dataset = written(data(y_train=words[:20], y_test=words[20:].astype(object)), tmp_path)
    assert dataset.labels == ("ape", "bee", "cat")
    assert dataset.classes().tolist() == [2 - number for number in CLASSES]
    pairs = iter(zip(IMAGES[:20], words[:20].tolist(), strict=True))
    tests = iter(zip(IMAGES[20:], words[20:].tolist(), strict=True))
    assert written(Data(pairs, None, tests, labels=["ape", "bee", "cat"]), tmp_path) == dataset


def test_labels_and_numbers_as_targets(tmp_path: Path) -> None:
    y = RANDOM.integers(0, 2, (30, 4))
    tags = written(data(y_train=y[:20], y_test=y[20:], labels=list("abcd")), tmp_path, "multilabel")
    assert (tags.targets.dtype, tags.targets.shape, tags.outputs, tags.labels) == ("uint8", (4,), 4, tuple("abcd"))
    np.testing.assert_array_equal(tags.target_values(), y)
    values = y[:, 0] + 0.5
    curve = written(data(y_train=values[:20], y_test=values[20:], groups=np.arange(20) // 5), tmp_path, "regression")
    assert (curve.targets.dtype, curve.targets.shape, curve.outputs, curve.labels) == ("float32", (1,), 1, ())
    np.testing.assert_array_equal(curve.target_values()[:, 0], values.astype(np.float32))
    assert curve.subjects().tolist() == [*np.repeat(np.arange(4), 5), *[-1] * 10]
    with pytest.raises(ValueError, match="expected a classification, got regression"):
        curve.classes()


WORDS = RANDOM.integers(0, 9, (30, 5)).astype(np.int32)
TAGS = WORDS % 3


@pytest.mark.parametrize("shape", [(5,), (3, 2)])
def test_a_class_at_each_position(tmp_path: Path, shape: tuple[int, ...]) -> None:
    y = np.arange(30 * np.prod(shape)).reshape(30, *shape) % 3
    dataset = written(data(y_train=y[:20], y_test=y[20:], weights=np.ones(20)), tmp_path)
    assert (dataset.targets.dtype, dataset.targets.shape, dataset.labels) == ("int32", shape, ("0", "1", "2"))
    np.testing.assert_array_equal(dataset.classes(), y)
    assert dataset.summary().endswith(f"3 classes at {' x '.join(map(str, shape))} positions")
    assert open_prepared(dataset.folder) == dataset
    words = np.array(["ape", "bee", "cat"], object)[y]
    named = written(data(y_train=words[:20], y_test=words[20:]), tmp_path)
    assert named.labels == ("ape", "bee", "cat")
    np.testing.assert_array_equal(named.classes(), y)


def test_positions_of_windows_and_of_iterators(tmp_path: Path) -> None:
    whole = written(data(x_train=WORDS[:20], y_train=TAGS[:20], x_test=WORDS[20:], y_test=TAGS[20:]), tmp_path)
    parts = slice(20), slice(20, None)
    pairs = [iter(zip(WORDS[part], TAGS[part], strict=True)) for part in parts]
    batches = (Batch(WORDS[part], TAGS[part], test=part.stop is None) for part in parts)
    assert written(Data(pairs[0], None, pairs[1]), tmp_path) == written(Data(batches), tmp_path) == whole
    motion = RANDOM.normal(size=(30, 5, 3))
    made = written(data(x_train=motion[:20], y_train=TAGS[:20], x_test=motion[20:], y_test=TAGS[20:]), tmp_path,
                   standardized=True)  # fmt: skip
    assert not made.holds_windows, "or the built-in networks would take them"
    assert open_prepared(made.folder) == made


def test_two_classes_at_each_position_need_their_names(tmp_path: Path) -> None:
    y = TAGS % 2
    made = written(data(y_train=y[:20], y_test=y[20:], labels=["no", "yes"]), tmp_path)
    assert (made.targets.shape, made.labels) == ((5,), ("no", "yes"))


def nan_at(x: Any, *index: int) -> Any:
    x = x.astype(float)
    x[index] = np.nan
    return x


BAD: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a list": (lambda: [1, 2], "classification", r"expected Data\(.*\) or a dict with these keys, got list"),
    "a key too many": (lambda: {**vars(data()), "x_tset": 1}, "classification", "'x_tset': did you mean x_test"),
    "no x_train": (lambda: {"y_train": [1]}, "classification", "x_train is missing"),
    "no y_test": (lambda: data(y_test=None), "classification", "y_test is missing"),
    "no test": (lambda: Data(iter([(IMAGES[0], 0)])), "classification", "x_test: expected at least one example"),
    "an unknown task": (data, "ranking", "task: expected classification, multilabel, regression, got 'ranking'"),
    "nothing": (lambda: data(x_test=IMAGES[:0], y_test=[]), "classification", "x_test: expected at least one example"),
    "too few targets": (lambda: data(y_train=[1]), "classification", "y_train: expected 20 targets, .* got 1"),
    "ragged": (lambda: data(x_train=[[1], [1, 2]]), "classification", "x_train: .* got rows of unequal length"),
    "objects": (lambda: data(x_train=IMAGES[:20].astype(object)), "classification", "x_train: .* got object"),
    "text": (lambda: data(x_train=["a"] * 20, x_test=["a"] * 10), "classification", "got <U1; turn text into numbers"),
    "another shape": (lambda: data(x_test=IMAGES[20:, 1:]), "classification", r"x_test: expected .* shape \(5"),
    "another dtype": (lambda: data(x_test=IMAGES[20:] * 0.5), "classification", r"x_test\[0\]: expected dtype uint8"),
    "a number alone": (lambda: data(x_train=3), "classification", "x_train: expected .*got one int64"),
    "NaN": (
        lambda: data(x_train=nan_at(IMAGES[:20], 17, 2, 1, 0), x_test=IMAGES[20:] * 1.0),
        "classification", r"x_train\[17, 2, 1, 0\]: expected a finite float32 number, got nan",
    ),
    "too large": (
        lambda: data(x_train=IMAGES[:20] * 1e300, x_test=IMAGES[20:] * 1.0), "classification",
        r"x_train\[0, 0, 0, \d\]: expected a finite float32 number, got .*e\+30",
    ),
    "one-hot": (
        lambda: data(y_train=np.eye(3)[CLASSES[:20]]), "classification", r"y_train: .* one-hot .*argmax\(axis=1\)"
    ),
    "one-hot at positions": (
        lambda: data(y_train=np.eye(3)[TAGS[:20]]), "classification", r"one-hot .*argmax\(axis=2\)"
    ),
    "one-hot in batches": (
        lambda: Data(iter([Batch(IMAGES, np.eye(3)[CLASSES]), Batch(IMAGES, np.eye(3)[CLASSES], test=True)]),
                     labels=list("abc")),
        "classification", r"y_train: .* one-hot .*argmax\(axis=1\)",
    ),
    "many labels": (lambda: data(y_train=np.ones((20, 3))), "classification", "say task multilabel .* name both"),
    "other positions": (
        lambda: data(y_train=TAGS[:20], y_test=TAGS[20:, 1:]), "classification",
        r"y_test\[0\]: expected shape \(5,\) as in the examples before, got \(4,\)",
    ),
    "a class too many at a position": (
        lambda: data(y_train=TAGS[:20], y_test=TAGS[20:], labels=["a", "b"]), "classification",
        r"y_train\[\d+, \d\]: expected a class from 0 to 1, got 2",
    ),
    "an unknown text at a position": (
        lambda: data(y_train=np.array(list("abc"))[TAGS[:20]], y_test=np.full((10, 5), "d")), "classification",
        r"y_test\[0, 0\]: expected one of a, b, c, got 'd'",
    ),
    "a mask with channels": (
        lambda: data(y_train=np.zeros((20, 5, 4, 1), int)), "classification", r"give y\[\.\.\., 0\]"
    ),
    "one sequence of vectors as a pair": (
        lambda: Data(iter([(np.zeros((5, 2)), TAGS[0])])), "classification",
        r"also of one: Batch\(x\[None\], y\[None\]\)",
    ),
    "a column": (lambda: data(y_train=CLASSES[:20, None]), "classification", r"give y\[:, 0\]"),
    "half a class": (lambda: data(y_train=CLASSES[:20] / 2), "classification", r"y_train\[1\]: .* got 0.5; say task"),
    "a class below 0": (lambda: data(y_test=CLASSES[20:] - 1), "classification", r"y_test\[1\]: .* got -1; number"),
    "a class too many": (
        lambda: data(labels=["a", "b"]), "classification", r"y_train\[2\]: expected a class from 0 to 1, got 2"
    ),
    "a class never trained": (lambda: data(y_test=CLASSES[20:] + 1), "classification", "no example of class 3 of 4"),
    "an unknown text": (
        lambda: data(y_train=np.array(list("abc"))[CLASSES[:20]], y_test=["d"] * 10),
        "classification", r"y_test\[0\]: expected one of a, b, c, got 'd'",
    ),
    "equal labels": (lambda: data(labels=["a", "a", "b"]), "classification", "labels: expected different names"),
    "one label": (lambda: data(labels="cat"), "classification", "labels: expected a list of names, got 'cat'"),
    "a label of 2": (lambda: data(y_train=CLASSES[:20, None]), "multilabel", r"y_train\[2, 0\]: .* got 2"),
    "labels in a row": (data, "multilabel", r"y_train: expected 0 or 1 .* got shape \(20,\)"),
    "no number": (lambda: data(y_test=nan_at(CLASSES[20:], 4)), "regression", r"y_test\[4\]: expected a finite"),
    "too few groups": (lambda: data(groups=[1]), "classification", "groups: expected 20 numbers, .* got 1"),
    "half a group": (lambda: data(groups=np.ones(20)), "classification", "groups: expected whole numbers, got float64"),
    "a weight below 0": (lambda: data(weights=-np.ones(20)), "classification", r"weights\[0\]: .* finite weight"),
    "no pairs": (lambda: Data(iter([1])), "classification", "got int; yield"),
    "y beside pairs": (lambda: data(x_train=iter([])), "classification", "y_train: expected none, because x_train is"),
    "half an iterator": (lambda: data(x_train=iter([]), y_train=None), "classification", "give both the same way"),
    "a batch as a pair": (
        lambda: data(x_train=iter([(IMAGES, CLASSES)]), y_train=None, x_test=None, y_test=None), "classification",
        r"y_train\[0\]: expected the target of one example, got shape \(30,\); yield one pair",
    ),
    "pairs of two shapes": (
        lambda: Data(iter([(IMAGES[0], 0), (IMAGES[0, 0], 0)])), "classification", r"x_train\[1\]: expected shapes"
    ),
    "text without labels": (lambda: Data(iter([(IMAGES[0], "cat")])), "classification", "name all classes in labels"),
    "a group in both": (
        lambda: Data(iter([Batch(IMAGES[:1], CLASSES[:1], CLASSES[:1], test=test) for test in (False, True)])),
        "classification", "group 0 is in the training and in the test set",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_is_one_line_that_names_the_argument(tmp_path: Path, name: str) -> None:
    make, task, expected = BAD[name]
    with pytest.raises(DataError) as caught:
        written(make(), tmp_path, task)
    line = str(caught.value)
    assert line.startswith("data(): ")
    assert re.search(expected, line), line
    assert "\n" not in line
    assert not list(tmp_path.iterdir())


def test_progress_says_how_much_there_is(tmp_path: Path) -> None:
    x = np.zeros((9, 2**20), np.float32)
    seen: list[tuple[str, int, int]] = []
    written(data(x_train=x[:6], y_train=CLASSES[:6], x_test=x[6:], y_test=CLASSES[:3]), tmp_path,
            report=lambda *said: seen.append(said))  # fmt: skip
    assert seen == [("writing", done, 9) for done in range(1, 10)]
