"""Figures against confusion matrices small enough to count by hand."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cluster.models.objective import CONFUSION, EXAMPLES, LOSS, Classification
from cluster.status.parts import Figures


def figures(confusion: NDArray[np.integer], loss_sum: float) -> Figures:
    sums = {EXAMPLES: np.array(confusion.sum()), LOSS: np.array(loss_sum), CONFUSION: confusion}
    return Figures(**Classification(len(confusion)).figures(sums))


def test_three_classes_by_hand() -> None:
    #                     predicted: 0  1  2
    confusion = np.array([[4, 1, 0], [2, 2, 1], [0, 0, 10]])
    found = figures(confusion, loss_sum=10.0)
    precision = (4 / 6, 2 / 3, 10 / 11)
    recall = (4 / 5, 2 / 5, 1.0)
    f1 = [2 * p * r / (p + r) for p, r in zip(precision, recall, strict=True)]
    assert found.accuracy == pytest.approx(16 / 20)
    assert found.precision_macro == pytest.approx(sum(precision) / 3)
    assert found.recall_macro == pytest.approx(sum(recall) / 3)
    assert found.f1_macro == pytest.approx(sum(f1) / 3)
    assert found.precision_weighted == pytest.approx((5 * precision[0] + 5 * precision[1] + 10 * precision[2]) / 20)
    assert found.recall_weighted == pytest.approx(16 / 20)
    assert found.f1_weighted == pytest.approx((5 * f1[0] + 5 * f1[1] + 10 * f1[2]) / 20)
    assert found.loss == pytest.approx(0.5)


def test_a_class_that_was_never_predicted_has_precision_zero() -> None:
    found = figures(np.array([[3, 0], [1, 0]]), loss_sum=0.0)
    assert found.precision_macro == pytest.approx((3 / 4 + 0) / 2)
    assert found.recall_macro == pytest.approx(1 / 2)
    assert found.f1_macro == pytest.approx((2 * 0.75 / 1.75) / 2)


def test_a_class_without_windows_is_left_out_of_the_macro_means() -> None:
    #                     one window of class 0 was taken for class 2, of which there is none
    found = figures(np.array([[3, 0, 1], [0, 4, 0], [0, 0, 0]]), loss_sum=0.0)
    assert found.recall_macro == pytest.approx((3 / 4 + 1) / 2)
    assert found.precision_macro == pytest.approx(1.0)
    assert found.accuracy == pytest.approx(7 / 8)


def test_all_right_is_one_everywhere_and_every_figure_is_described() -> None:
    described = figures(np.diag([5, 6, 7]), loss_sum=1.8).describe()
    assert described.pop("loss") == pytest.approx(0.1)
    assert set(described) >= {"accuracy", "f1_macro", "f1_weighted", "precision_macro", "recall_macro"}
    assert all(value == 1.0 for value in described.values())


def test_no_window_has_no_figures() -> None:
    with pytest.raises(ValueError, match="no window"):
        figures(np.zeros((3, 3), np.int64), 0.0)
