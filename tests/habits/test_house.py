"""The figures of the house are counted as they are named, and a figure beyond its limit is said."""

import ast
import json
from pathlib import Path

import pytest

from tests.deploy.tables import Tables
from tests.ran import ran
from tests.shown import part
from tests.tables import table
from tools import house
from tools.house import Limit, Module

pytestmark = pytest.mark.sources

rows = Tables(__file__)


def module(name: str, text: str) -> Module:
    return Module(name, text, ast.parse(text))


def test_an_import_of_a_floor_above_is_an_arrow_against_the_order() -> None:
    below = module("core/data/x.py", "import numpy\nfrom deploy.jobs import y\n")
    above = module("deploy/jobs/y.py", "import core.data.x\n")
    assert house.arrows_upward([below, above]) == ["core/data/x.py imports deploy.jobs"]


def test_a_class_name_counts_once_for_two_modules() -> None:
    first = module("core/a.py", "class Lane: ...\nclass _Own: ...\n")
    second = module("cluster/b.py", "class Lane: ...\nclass _Own: ...\nclass Other: ...\n")
    assert house.names_used_twice([first, second]) == {"Lane": ["core/a.py:1", "cluster/b.py:1"]}


@rows("text", "lines")
def test_a_docstring_without_a_subject_is_found(text: str, lines: list[int]) -> None:
    assert house.subjectless([module("core/a.py", text)]) == [f"core/a.py:{one}" for one in lines]


def test_a_figure_beyond_its_limit_is_one_line() -> None:
    limits = {"import contracts": Limit(12, None), "tests": Limit(5, 1)}
    problems = house.beyond({"import contracts": 13.0, "tests": 5}, limits)
    assert problems == ["import contracts: 13.0, at most 12"]


def test_a_module_belongs_to_the_room_of_its_longest_folder() -> None:
    modules = [module("core/a.py", "a"), module("core/data/b.py", "b = 1")]
    sizes = house.sizes(modules, {"core/": "ground", "core/data/": "data"})
    assert sizes == {"ground": 4, "data": 5}
    with pytest.raises(ValueError, match=r"core/a\.py: no room"):
        house.sizes(modules, {"core/data/": "data"})


def limits_of(most: int, budget: int) -> str:
    rows = {"a room": {"folders": ["core/"], "limit": most, "budget": budget}}
    return json.dumps({"rooms": rows, "figures": {}}, indent=1) + "\n"


def test_today_s_figures_lower_the_limits_and_raise_none() -> None:
    assert house.lowered(limits_of(9, 5), {"a room": 7}) == limits_of(7, 5)
    assert house.lowered(limits_of(9, 5), {"a room": 12}) == limits_of(9, 5)


@rows("before", "after", "names")
def test_a_limit_and_a_budget_may_not_rise(
    before: list[int], after: list[int], names: list[str]
) -> None:
    old, new = (house.read_limits(limits_of(*numbers)) for numbers in (before, after))
    assert house.raised(old, new) == names


def test_a_commit_that_raises_a_limit_does_only_that(tmp_path: Path) -> None:
    def commit(**files: str) -> str:
        for name, text in files.items():
            (tmp_path / name.replace("__", "/")).with_suffix(".json").write_text(text)
        ran("git", "-C", tmp_path, "add", "-A")
        identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
        ran("git", "-C", tmp_path, *identity, "commit", "-q", "-m", "a change")
        return ran("git", "-C", tmp_path, "rev-parse", "HEAD").stdout[:8]

    ran("git", "init", "-q", tmp_path)
    (tmp_path / "tools").mkdir()
    commit(tools__house=limits_of(5, 5), other="1")
    commit(tools__house=limits_of(6, 5))
    assert house.raised_on_the_side(tmp_path) == []
    commit(tools__house=limits_of(4, 5), other="2")
    assert house.raised_on_the_side(tmp_path) == []
    name = commit(tools__house=limits_of(8, 5), other="3")
    (problem,) = house.raised_on_the_side(tmp_path)
    assert problem.startswith(f"{name} raises a room and changes other files")


def test_a_page_gets_the_table_between_its_marks() -> None:
    page = f"before\n{house.BEGIN}old\n{house.END}after\n"
    rows = house.table({"a room": 7}, {"a room": Limit(9000, 5000)})
    text = house.with_table(page, rows)
    assert text == f"before\n{house.BEGIN}\n{rows}\n{house.END}after\n"
    assert "| a room | 9,000 | 5,000 |\n" in rows


def test_a_repository_is_counted(tmp_path: Path) -> None:
    ran("git", "init", "-q", tmp_path)
    counted = table("habits/tables", "a_counted_repository")
    for name, text in counted["files"].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "house.json").write_text(limits_of(9, 5))
    found = house.figures(tmp_path)
    assert part(found, counted["figures"]) == counted["figures"]
    assert found["a room"] == found["nodes of the product with experiments"] > 10
