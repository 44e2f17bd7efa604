"""Dashboards as Grafana reads them."""

import json
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest

from deploy.monitor.files import dashboards
from tests.deploy.monitor.expressions import RECORDINGS, expressions_of, panels_of

DASHBOARDS: dict[str, dict[str, Any]] = {
    name: json.loads(text) for name, text in dashboards().items()
}

pytestmark = pytest.mark.parametrize("name", DASHBOARDS)


def every(value: Any) -> Iterator[tuple[str, Any]]:
    """Each key with its value, however deep."""
    if isinstance(value, dict):
        yield from value.items()
        value = [*value.values()]
    if isinstance(value, list):
        for item in value:
            yield from every(item)


def labels_left(expression: str) -> list[str] | None:
    """The labels by which an expression aggregates in the end; None if it does not."""
    found = re.fullmatch(r"(?:time\(\) - )?(?:sum|min|max) by \(([^)]*)\) (\(.*\))", expression)
    if found is None:
        return None
    depths = list(accumulate({"(": 1, ")": -1}.get(letter, 0) for letter in found[2]))
    if depths.index(0) == len(depths) - 1:
        return found[1].split(", ")
    return None


def test_expressions_are_of_the_chosen_cluster_and_name_series_as_they_are_recorded(
    name: str,
) -> None:
    for _, expression in expressions_of(DASHBOARDS[name]):
        for selector in re.findall(r"pscluster_[\w:]+(\{[^}]*\})?", expression):
            assert 'cluster="$cluster"' in selector, expression
        assert set(re.findall(r"\w+:\w+:\w+", expression)) <= set(RECORDINGS), expression


def test_what_is_said_to_be_so_now_is_asked_for_at_one_time(name: str) -> None:
    """Of a range the last value would be shown, that of a job long over too."""
    for panel in panels_of(DASHBOARDS[name]):
        now = panel["type"] in ("stat", "table")
        assert {(target["instant"], target["range"]) for target in panel["targets"]} == {
            (now, not now)
        }, panel["title"]


def test_a_table_s_columns_have_no_label_but_that_of_its_rows(name: str) -> None:
    """Grafana's `merge` joins rows in which all that two columns share is equal, the name of a
    series included."""
    for panel in panels_of(DASHBOARDS[name]):
        if panel["type"] == "table":
            (renamed,) = (value for key, value in every(panel) if key == "renameByName")
            (row,) = (label for label in renamed if not label.startswith("Value #"))
            for target in panel["targets"]:
                assert labels_left(target["expr"]) == [row], target["expr"]
