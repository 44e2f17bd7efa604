"""The figures of the house are counted as they are named, and a figure beyond its limit is said."""

import ast
from pathlib import Path

import pytest

from tests.ran import ran
from tools import house
from tools.house import LIMITS, Module

pytestmark = pytest.mark.sources


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


@pytest.mark.parametrize("text", ["Of the container.", "See asyncio.", "The same for two."])
def test_a_docstring_without_a_subject_is_found(text: str) -> None:
    found = house.subjectless([module("core/a.py", f'def f():\n    """{text}"""\n')])
    assert found == ["core/a.py:1"]


def test_a_docstring_with_a_subject_is_none_of_them() -> None:
    text = 'def f():\n    """Offer the samples that a worker drew."""\n'
    assert house.subjectless([module("core/a.py", text)]) == []


def test_a_figure_beyond_its_limit_is_one_line() -> None:
    found = {**dict.fromkeys(LIMITS, 0.0), "import contracts": 13.0}
    assert house.beyond(found, LIMITS) == ["import contracts: 13.0, at most 12"]


def test_a_repository_is_counted(tmp_path: Path) -> None:
    ran("git", "init", "-q", tmp_path)
    (tmp_path / "core").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "core" / "a.py").write_text("a, b = f()\nc = 1 if a else 2  # fmt: skip\n")
    (tmp_path / "docs" / "page.md").write_text("three words here\n")
    (tmp_path / "README.md").write_text("one\n")
    (tmp_path / "CONTRIBUTING.md").write_text("one\n")
    (tmp_path / "pyproject.toml").write_text("[[tool.importlinter.contracts]]\nid = 'a'\n")
    found = house.figures(tmp_path)
    assert found["words of docs"] == 5
    assert found["import contracts"] == 1
    assert found["places that switch the formatter off (all)"] == 1
    assert found["tuple assignments a thousand lines"] == 500.0
    assert found["conditional expressions a thousand lines"] == 500.0
    assert found["nodes of the product"] > 10
