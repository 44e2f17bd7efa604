"""Figures against confusion matrices small enough to count by hand."""

import numpy as np
import pytest

from core.models.objective import CONFUSION, EXAMPLES, LOSS
from core.models.tasks import Classification
from core.status.parts import Figures


def figures(rows: list[list[int]], loss_sum: float = 0.0) -> Figures:
    confusion = np.array(rows)
    sums = {EXAMPLES: np.array(confusion.sum()), LOSS: np.array(loss_sum), CONFUSION: confusion}
    return Figures(**Classification(len(confusion)).figures(sums))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            [[3, 0], [1, 0]],
            {
                "precision_macro": 3 / 8,
                "recall_macro": 1 / 2,
                "f1_macro": 0.75 / 1.75,
                "precision_weighted": 9 / 16,
                "recall_weighted": 3 / 4,
            },
            id="a class that was never predicted has precision zero",
        ),
        pytest.param(
            [[3, 0, 1], [0, 4, 0], [0, 0, 0]],
            {"precision_macro": 1.0, "recall_macro": (3 / 4 + 1) / 2, "accuracy": 7 / 8},
            id="a class without windows is left out of the macro means",
        ),
        pytest.param(
            [[5, 0, 0], [0, 6, 0], [0, 0, 7]],
            dict.fromkeys(("accuracy", "f1_macro", "f1_weighted", "precision_weighted"), 1.0),
            id="all right is one",
        ),
    ],
)
def test_two_or_three_classes(rows: list[list[int]], expected: dict[str, float]) -> None:
    described = figures(rows).describe()
    assert {name: described[name] for name in expected} == pytest.approx(expected)


def test_no_window_has_no_figures() -> None:
    with pytest.raises(ValueError, match="no window"):
        figures([[0, 0, 0]] * 3)
