"""Each test has one tier, and the measured costs say which."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import costs as measuring
from tests import tiers
from tests.costs import Measured, merged
from tests.deploy.tables import Tables
from tests.tables import table
from tests.tiers import Costs, tier_of

pytestmark = pytest.mark.sources

rows = Tables(__file__)


def costs_of(content: dict[str, Any]) -> Costs:
    seconds: dict[str, Any] = {name: content.get(name, {}) for name in tiers.TIERS if name != "lab"}
    return Costs(**seconds, need_root=frozenset(content.get("need_root", ())))


SOME = costs_of(table("habits/tables", "some_costs"))


@rows("node", "marks", "fixtures", "tier")
def test_a_test_has_one_tier(node: str, marks: list[str], fixtures: list[str], tier: str) -> None:
    assert tier_of(node, marks, fixtures, SOME) == tier


@rows("costs", "measured", "after")
def test_what_was_measured_is_merged(
    costs: dict[str, Any], measured: list[dict[str, Any]], after: dict[str, Any]
) -> None:
    kinds = dict.fromkeys(("is_long", "uses_shared_cluster", "needs_root"), False)
    tests = [Measured(**{**kinds, **one}) for one in measured]
    assert merged(costs_of(costs), tests, lambda node: "gone" not in node) == costs_of(after)


def test_a_shared_fixture_costs_each_of_its_tests_a_part() -> None:
    records = table("habits/tables", "records")
    seconds = {test.node: test.seconds for test in measuring.measured(records)}
    assert seconds == table("habits/tables", "seconds_of_records")


def test_costs_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(measuring.written(SOME))
    assert tiers.read_costs(path) == SOME
    assert json.loads(path.read_text())["need_root"] == []


def test_each_test_that_the_costs_name_exists() -> None:
    costs = tiers.read_costs()
    nodes = {*costs.fast, *costs.stories, *costs.long, *costs.all, *costs.need_root}
    assert [node for node in sorted(nodes) if not measuring.exists(node)] == []
