"""What a person may give by mistake is one line that names the argument."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.data.prepare import Batch, Data
from tests.core.data.desk import refused, words, wrong
from tests.core.data.given_examples import CLASSES, IMAGES, TAGS, cut, data, written
from tests.core.data.npz_files import Arrays, changed


@wrong("examples")
def test_a_wrong_argument_is_named(tmp_path: Path, row: Arrays) -> None:
    given = Data(**changed(vars(data()), row))
    refuses(tmp_path, row["says"], given, row.get("as", "classification"))


def test_digits_that_float32_would_lose(tmp_path: Path) -> None:
    x = np.full((30, 2), 0.5)
    x[:, 1] = 1.78e12 + 20.0 * np.arange(30)
    said = "x_train[..., 1]: 1780000000000 to 1780000000380 differ by less than float32 numbers"
    refuses(tmp_path, said, cut(x))


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (CLASSES, "y_train: expected none, because x_train is"),
        (None, "x_test: expected an iterator as the other part is one; give both the same way"),
    ],
)
def test_half_an_iterator_is_refused(tmp_path: Path, y: Any, said: str) -> None:
    refuses(tmp_path, "groups: expected none", Data(iter([]), x_test=iter([]), groups=[0]))
    refuses(tmp_path, said, data(x_train=iter([]), y_train=y))


def refuses(folder: Path, said: str, given: Any, task: str = "classification") -> None:
    """Its error begins with the function's name, and nothing is written."""
    with refused(said) as caught:
        written(given, folder, task)
    assert str(caught.value).startswith("data(): ")
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1, 2], "expected Data( ... ) or a dict with these keys, got list"),
        ({**vars(data()), "x_tset": 1}, "'x_tset': did you mean x_test"),
        ({"y_train": [1]}, "x_train is missing"),
    ],
)
def test_what_is_no_data_is_refused(tmp_path: Path, given: Any, said: str) -> None:
    refuses(tmp_path, said, given)


@pytest.mark.parametrize(
    ("examples", "labels", "said"),
    [
        ([(IMAGES[0], 0)], None, "x_test: expected at least one example"),
        ([1], None, "got int; yield"),
        (
            [(IMAGES, CLASSES)],
            None,
            "expected the target of one example, got shape (30,); yield one pair",
        ),
        ([(IMAGES[0], 0), (IMAGES[0, 0], 0)], None, "x_train[1]: expected shapes"),
        ([(IMAGES[0], "cat")], None, "name all classes in labels"),
        ([Batch(IMAGES[:3], CLASSES[:2])], None, "y_train: expected 3 targets, one for each"),
        (
            [Batch(IMAGES[:2], CLASSES[:2], weights=np.ones((2, 1), np.float32))],
            None,
            "expected 2 numbers, one for each training example, got shape (2, 1)",
        ),
        ([(np.zeros((5, 2)), TAGS[0])], None, "also of one: Batch(x[None], y[None])"),
        (
            [Batch(IMAGES, np.eye(3)[CLASSES], test=test) for test in (False, True)],
            list("abc"),
            "y_train: ... one-hot ... argmax(axis=1)",
        ),
        (
            [Batch(IMAGES[:2], CLASSES[:2], CLASSES[:2], test=test) for test in (False, True)],
            None,
            "group 0 is in the training and in the test set",
        ),
        (
            [Batch(IMAGES, CLASSES * 0 + 1), Batch(IMAGES[:1], CLASSES[:1], test=True)],
            ["cat", "dog"],
            "y_train: expected at least 2 classes, got 'dog' alone",
        ),
    ],
    ids=words,
)
def test_what_an_iterator_must_not_bring_is_named(
    tmp_path: Path, examples: list[Any], labels: list[str] | None, said: str
) -> None:
    refuses(tmp_path, said, Data(iter(examples), labels=labels))
