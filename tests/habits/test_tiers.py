"""Each test has one tier, and the measured costs say which."""

import json
from pathlib import Path

import pytest

from tests import costs as measuring
from tests import tiers
from tests.costs import Measured, merged
from tests.tiers import Costs, tier_of

pytestmark = pytest.mark.sources

NONE = Costs({}, {}, {}, {}, frozenset())
SOME = Costs(
    {"t/a.py": 3.0},
    {"t/a.py::b[1]": 2.0},
    {"t/l.py::m": 9.0},
    {"t/a.py::b[2]": 2.0},
    NONE.need_root,
)


@pytest.mark.parametrize(
    ("node", "marks", "fixtures", "tier"),
    [
        ("t/a.py::new", [], [], "fast"),
        ("t/a.py::b[1]", [], [], "stories"),
        ("t/a.py::b[2]", [], [], "all"),
        ("t/a.py::new", [], ["clusters"], "stories"),
        ("t/l.py::m", ["long"], ["clusters"], "long"),
        ("t/l.py::new", ["long"], [], "all"),
        ("t/x.py::y", ["lab", "long"], [], "lab"),
        ("t/x.py::y", ["sources"], [], "sources"),
    ],
)
def test_a_test_has_one_tier(node: str, marks: list[str], fixtures: list[str], tier: str) -> None:
    assert tier_of(node, marks, fixtures, SOME) == tier


def measured(node: str, seconds: float, is_long: bool = False, root: bool = False) -> Measured:
    return Measured(node, seconds, is_long, uses_shared_cluster=False, needs_root=root)


def merge(costs: Costs, *tests: Measured) -> Costs:
    return merged(costs, tests, lambda node: "gone" not in node)


def test_the_first_form_of_a_dear_test_is_a_story() -> None:
    costs = merge(NONE, *(measured(f"t/a.py::b[{form}]", 1.5) for form in "xyz"))
    assert costs.stories == {"t/a.py::b[x]": 1.5}
    assert costs.all == {"t/a.py::b[y]": 1.5, "t/a.py::b[z]": 1.5}


def test_a_measured_test_keeps_its_tier_while_its_cost_allows_it() -> None:
    costs = merge(SOME, measured("t/a.py::b[1]", 0.8), measured("t/a.py::b[2]", 0.5))
    assert costs.stories == {"t/a.py::b[1]": 0.8}
    assert costs.all == {}
    assert costs.fast == {"t/a.py": 3.5}


def test_a_file_s_fast_tests_are_measured_together() -> None:
    costs = merge(SOME, measured("t/a.py::c", 0.25), measured("t/a.py::d", 0.5))
    assert (costs.fast, costs.stories, costs.all) == ({"t/a.py": 0.75}, SOME.stories, SOME.all)


def test_a_long_test_that_nobody_chose_is_left_to_all() -> None:
    costs = merge(SOME, measured("t/l.py::m", 7.0, is_long=True), measured("t/l.py::n", 5.0, True))
    assert costs.long == {"t/l.py::m": 7.0}
    assert costs.all["t/l.py::n"] == 5.0


def test_what_exists_no_more_is_left_out() -> None:
    old = Costs({"gone.py": 1.0}, {"gone.py::a": 2.0}, {}, {}, frozenset({"gone.py::a"}))
    assert merge(old) == NONE


def test_who_needs_root_is_written_down_and_taken_back() -> None:
    costs = merge(NONE, measured("t/a.py::b", 0.1, root=True))
    assert costs.need_root == {"t/a.py::b"}
    assert merge(costs, measured("t/a.py::b", 0.1)).need_root == frozenset()


def test_a_shared_fixture_costs_each_of_its_tests_a_part() -> None:
    test = {"kind": "test", "seconds": 1.0, "is_long": False, "uses_shared_cluster": False}
    test |= {"needs_root": False, "shared": ["served", "everywhere"]}
    records = [
        {**test, "name": "t/a.py::one"},
        {**test, "name": "t/a.py::two"},
        {**test, "name": "t/b.py::one", "shared": ["everywhere"]},
        {"kind": "fixture", "name": "served", "where": "t/a.py", "seconds": 4.0},
        {"kind": "fixture", "name": "everywhere", "where": "", "seconds": 3.0},
    ]
    seconds = {test.node: test.seconds for test in measuring.measured(records)}
    assert seconds == {"t/a.py::one": 4.0, "t/a.py::two": 4.0, "t/b.py::one": 2.0}


def test_costs_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(measuring.written(SOME))
    assert tiers.read_costs(path) == SOME
    assert json.loads(path.read_text())["need_root"] == []


def test_each_test_that_the_costs_name_exists() -> None:
    costs = tiers.read_costs()
    nodes = {*costs.fast, *costs.stories, *costs.long, *costs.all, *costs.need_root}
    assert [node for node in sorted(nodes) if not measuring.exists(node)] == []
