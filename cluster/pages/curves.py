"""Precision over recall of each class on the test set, from a run's `result.json`.

The file may be foreign.
"""

from collections.abc import Mapping
from math import floor, isfinite
from typing import Any

from cluster.pages.charts import Chart, Series, chart, thinned
from cluster.pages.run_files import StoredRun, part_of
from cluster.pages.words import label

MOST_CURVES = 30
LONGEST_LABEL = 60
EARLY_RECALL = 0.95
"""The picture has room for all precisions up to this recall."""


def precision_recall(run: StoredRun, unit: str) -> Chart:
    """The chart; empty where the run has no such curves."""
    curves = part_of(run.result, "precision_recall")
    series: list[Series] = []
    for text, curve in list(curves.items())[:MOST_CURVES] if isinstance(curves, Mapping) else []:
        points = _points(curve)
        if isinstance(curve, Mapping):
            average = _number(part_of(curve, "average_precision"))
        else:
            average = None
        if points and average is not None:
            name = f"{label(str(text)[:LONGEST_LABEL])} ({average:.3f})"
            series.append(Series(name, thinned(points), len(series)))
    # Good curves would all lie along the top; each falls to the share of its class at the very end.
    early = [y or 0.0 for line in series for x, y in line.points if (x or 0.0) <= EARLY_RECALL]
    y_range = (floor(20 * min([*early, 0.9])) / 20, 1.0)
    return chart("precision_recall", *series, unit=unit, y_range=y_range)


def _points(curve: Any) -> list[tuple[float, float]]:
    """Return the points by rising recall; none if the numbers are not shares."""
    if not isinstance(curve, Mapping):
        return []
    recall = curve.get("recall")
    precision = curve.get("precision")
    if (
        not isinstance(recall, list)
        or not isinstance(precision, list)
        or len(recall) != len(precision)
    ):
        return []
    points = [(_number(x), _number(y)) for x, y in zip(recall, precision, strict=True)]
    shares = [
        (x, y) for x, y in points if x is not None and y is not None and 0 <= x <= 1 and 0 <= y <= 1
    ]
    if len(shares) == len(points):
        return sorted(shares, key=lambda point: point[0])
    return []


def _number(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if usable:
        return float(value)
    return None
