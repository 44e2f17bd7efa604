"""Figures against confusion matrices small enough to count by hand."""

import numpy as np
import pytest

from core.models.objective import CONFUSION, EXAMPLES, LOSS
from core.models.tasks import Classification
from core.status.parts import Figures
from tests.tables import table


def figures(rows: list[list[int]], loss_sum: float = 0.0) -> Figures:
    confusion = np.array(rows)
    sums = {EXAMPLES: np.array(confusion.sum()), LOSS: np.array(loss_sum), CONFUSION: confusion}
    return Figures(**Classification(len(confusion)).figures(sums))


KNOWN = table("cluster/jobs/rows", "figures")


@pytest.mark.parametrize("name", KNOWN)
def test_two_or_three_classes(name: str) -> None:
    expected = KNOWN[name]["expected"]
    described = figures(KNOWN[name]["rows"]).describe()
    assert {name: described[name] for name in expected} == pytest.approx(expected)


def test_no_window_has_no_figures() -> None:
    with pytest.raises(ValueError, match="no window"):
        figures([[0, 0, 0]] * 3)
