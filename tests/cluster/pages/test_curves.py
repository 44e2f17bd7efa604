"""The chart of precision and recall, from results that may be foreign."""

from typing import Any

import pytest

from cluster.pages.charts import MOST_POINTS, smoothed
from cluster.pages.special import precision_recall
from tests.tables import table

CURVE = table("cluster/pages/rows", "curve")


def test_each_class_is_a_line_with_its_average_precision() -> None:
    chart = precision_recall({"WALKING": CURVE, "<b>": CURVE}, "windows")
    assert [series.name for series in chart.series] == ["Walking (0.900)", "<b> (0.900)"]
    assert chart.series[0].points == ((0.5, 1.0), (1.0, 0.8))
    assert chart.y_range == (0.9, 1.0)
    assert "<b>" not in str(chart.json())


def test_a_throughput_that_comes_in_batches_is_smooth() -> None:
    points = smoothed([(at, 200 * (at % 2)) for at in range(400)])
    assert [speed for _, speed in points] == pytest.approx([100] * MOST_POINTS, abs=10)


@pytest.mark.parametrize(
    "found",
    table("cluster/pages/rows", "no curve"),
)
def test_what_is_no_curve_is_not_drawn(found: Any) -> None:
    assert precision_recall(found, "windows").is_empty
