"""The figures of a classification, all from its confusion matrix."""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Figures:
    """Accuracy, precision, recall and F1, macro (mean over classes) and weighted (by windows of the class); loss.

    A class that was never predicted has precision 0, one without windows is left out of the macro means.
    """

    accuracy: float
    f1_macro: float
    f1_weighted: float
    precision_macro: float
    precision_weighted: float
    recall_macro: float
    recall_weighted: float
    loss: float

    def describe(self) -> dict[str, float]:
        """As it stands in `result.json`."""
        return asdict(self)

    def line(self) -> str:
        """The two that people look at first."""
        return f"accuracy {self.accuracy:.4f}, macro F1 {self.f1_macro:.4f}"


def figures(confusion: NDArray[np.int64], loss_sum: float) -> Figures:
    """Figures of `confusion`, shape (classes, classes), rows the true class; `loss_sum` over all its windows."""
    windows = int(confusion.sum())
    if windows == 0:
        raise ValueError("no window was evaluated")
    hits = np.diag(confusion).astype(np.float64)
    true, predicted = confusion.sum(1).astype(np.float64), confusion.sum(0).astype(np.float64)
    precision = np.divide(hits, predicted, out=np.zeros_like(hits), where=predicted > 0)
    recall = np.divide(hits, true, out=np.zeros_like(hits), where=true > 0)
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros_like(hits), where=total > 0)
    there = true > 0
    weights = true / windows

    def macro(values: NDArray[np.float64]) -> float:
        return float(values[there].mean())

    def weighted(values: NDArray[np.float64]) -> float:
        return float((values * weights).sum())

    return Figures(
        accuracy=float(hits.sum() / windows),
        f1_macro=macro(f1),
        f1_weighted=weighted(f1),
        precision_macro=macro(precision),
        precision_weighted=weighted(precision),
        recall_macro=macro(recall),
        recall_weighted=weighted(recall),
        loss=loss_sum / windows,
    )
