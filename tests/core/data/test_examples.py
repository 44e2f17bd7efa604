"""Anybody's examples in the store: arrays, lists, iterators.

Nothing is half written.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.data import open_prepared
from core.data.dataset import Array
from core.data.prepare import Batch, Data
from core.ground.lazy import tf
from tests.core.data.desk import has
from tests.core.data.given_examples import CLASSES, IMAGES, RANDOM, TAGS, WORDS, cut, data, written
from tests.tables import table

TRAIN, TEST = slice(20), slice(20, None)


@pytest.mark.parametrize(("dtype", "stored"), table("core/data/tables", "stored").items())
@pytest.mark.parametrize("shape", [(), (7,), (5, 4, 3), (2, 2, 2, 2)])
def test_any_rank_and_dtype_comes_back_as_it_was(
    tmp_path: Path, dtype: str, stored: str, shape: tuple[int, ...]
) -> None:
    x = RANDOM.integers(0, 2, (30, *shape)).astype(dtype)
    dataset = written(cut(x), tmp_path)
    has(
        dataset,
        inputs=Array(f"inputs.{stored}", stored, shape),
        windows=x.astype(stored).tolist(),
        classes=CLASSES.tolist(),
        outputs=3,
        labels=("0", "1", "2"),
        task="classification",
        train_windows=20,
        test_windows=10,
    )
    assert open_prepared(dataset.folder) == dataset


def pairs(part: slice, x: Any = IMAGES, y: Any = CLASSES) -> Any:
    return iter(zip(x[part], y[part], strict=True))


def test_the_same_content_is_one_folder_and_an_iterator_gives_it_too(tmp_path: Path) -> None:
    first = written(data(), tmp_path)
    batches = (
        Batch(IMAGES[begin:end], CLASSES[begin:end], test=begin >= 20)
        for begin, end in ((20, 26), (0, 15), (26, 30), (15, 20))
    )
    lists = {"x_train": list(IMAGES[:20]), "y_train": CLASSES[:20].tolist()}
    for given in (
        vars(data()),
        data(**lists, x_test=tf.constant(IMAGES[20:])),
        {"x_train": pairs(TRAIN), "x_test": pairs(TEST)},
        Data(batches),
    ):
        assert written(given, tmp_path) == first
    assert [path.name for path in tmp_path.iterdir()] == [first.folder.name]


def test_windows_of_classes_keep_their_names_and_all_else_has_those_of_its_dtype(
    tmp_path: Path,
) -> None:
    x = RANDOM.normal(size=(30, 16, 3))
    motion = written(cut(x), tmp_path, standardized=True)
    windows = ("windows.f32", "classes.i32", "subjects.i32", "manifest.json")
    has(motion, files=windows, input_shape=(16, 3), holds_windows=True)
    weighted = written(data(weights=np.arange(20.0)), tmp_path)
    files = ("inputs.uint8", "targets.int32", "subjects.i32", "weights.f32", "manifest.json")
    assert weighted.files == files
    assert {path.name for path in weighted.folder.iterdir()} == {*files}
    assert weighted.weights is not None
    assert weighted.mapped(weighted.weights).tolist() == [*range(20), *[1] * 10]


def test_text_classes_are_numbered_and_named(tmp_path: Path) -> None:
    labels = ("ape", "bee", "cat")
    words = np.array(labels[::-1])[CLASSES]
    dataset = written(data(y_train=words[:20], y_test=words[20:].astype(object)), tmp_path)
    has(dataset, labels=labels, classes=(2 - CLASSES).tolist())
    given = Data(pairs(TRAIN, y=words.tolist()), None, pairs(TEST, y=words.tolist()), labels=labels)
    assert written(given, tmp_path) == dataset


def test_labels_and_numbers_as_targets(tmp_path: Path) -> None:
    y = RANDOM.integers(0, 2, (30, 4))
    tags = written(cut(y=y, labels=list("abcd")), tmp_path, "multilabel")
    targets = Array("targets.uint8", "uint8", (4,))
    has(tags, targets=targets, outputs=4, labels=tuple("abcd"), target_values=y.tolist())
    curve = written(cut(y=y[:, 0] + 0.5, groups=np.arange(20) // 5), tmp_path, "regression")
    has(
        curve,
        targets=Array("targets.float32", "float32", (1,)),
        outputs=1,
        labels=(),
        target_values=(y[:, :1] + 0.5).tolist(),
        subjects=[*np.repeat(np.arange(4), 5), *[-1] * 10],
    )
    with pytest.raises(ValueError, match="expected a classification, got regression"):
        curve.classes()


@pytest.mark.parametrize(("shape", "said"), [((5,), "5"), ((3, 2), "3 x 2")])
def test_a_class_at_each_position(tmp_path: Path, shape: tuple[int, ...], said: str) -> None:
    y = np.arange(30 * np.prod(shape)).reshape(30, *shape) % 3
    targets = Array("targets.int32", "int32", shape)
    dataset = written(cut(y=y, weights=np.ones(20)), tmp_path)
    has(dataset, targets=targets, labels=("0", "1", "2"), classes=y.tolist())
    assert dataset.summary().endswith(f"3 classes at {said} positions")
    assert open_prepared(dataset.folder) == dataset
    labels = ("ape", "bee", "cat")
    has(written(cut(y=np.array(labels, object)[y]), tmp_path), labels=labels, classes=y.tolist())


def test_positions_of_windows_and_of_iterators(tmp_path: Path) -> None:
    whole = written(cut(WORDS, TAGS), tmp_path)
    streams = [pairs(part, WORDS, TAGS) for part in (TRAIN, TEST)]
    assert written(Data(streams[0], None, streams[1]), tmp_path) == whole
    batches = (Batch(WORDS[part], TAGS[part], test=part is TEST) for part in (TRAIN, TEST))
    assert written(Data(batches), tmp_path) == whole
    made = written(cut(RANDOM.normal(size=(30, 5, 3)), TAGS), tmp_path, standardized=True)
    assert not made.holds_windows, "or the built-in networks would take them"
    assert open_prepared(made.folder) == made


def test_two_classes_at_each_position_need_their_names(tmp_path: Path) -> None:
    made = written(cut(y=TAGS % 2, labels=["no", "yes"]), tmp_path)
    has(made, targets=Array("targets.int32", "int32", (5,)), labels=("no", "yes"))
