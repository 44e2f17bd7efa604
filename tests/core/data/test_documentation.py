"""The page on own data is true.

Its worked example runs as printed, and its error lines are what the readers say.
"""

from pathlib import Path

import numpy as np
import pytest

from core.data import split_validation
from core.data.prepare import Data
from core.ground.errors import DataError
from tests.core.data.desk import Desk, has
from tests.core.data.given_examples import written
from tests.ran import PROJECT, python

PAGE = (PROJECT / "docs" / "data.md").read_text(encoding="utf-8")


def block(page: str, language: str) -> str:
    """The page's one example in this language."""
    (found,) = page.split(f"```{language}\n")[1:]
    return found.partition("```")[0]


def test_the_worked_example_runs_as_printed_and_is_accepted(desk: Desk) -> None:
    python("-c", block(PAGE, "python"), folder=desk.folder)
    dataset = desk.read("exercises.npz")
    labels = ("rest", "row", "skip", "jump")
    has(dataset, name="exercises", input_shape=(64, 6), labels=labels)
    has(dataset, train_windows=8 * 4 * 45, test_windows=3 * 4 * 45)
    parts = split_validation(dataset.subjects()[: dataset.train_windows], 2, 0)
    assert [len(part) for part in parts] == [6 * 4 * 45, 2 * 4 * 45]


X = np.zeros((20, 3, 2, 1), np.float32)
NAN = X.copy()
NAN[17, 2, 1, 0] = np.nan
CLASSES = [*range(10), *range(7), 12, 0, 1]


@pytest.mark.parametrize(
    "wrong",
    [
        Data(X, CLASSES, X, [0] * 20, labels=list("abcdefghij")),
        Data(NAN, [0] * 20, NAN, [0] * 20),
    ],
)
def test_the_lines_of_the_page_are_what_is_said(tmp_path: Path, wrong: Data) -> None:
    with pytest.raises(DataError) as caught:
        written(wrong, tmp_path)
    assert f"\n{caught.value}\n" in PAGE
