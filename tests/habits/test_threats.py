"""Each threat of docs/security.md names the tests that play it, and these exist."""

import ast
import re

import pytest

from tests.habits.plain_english import PROJECT

pytestmark = pytest.mark.sources

PAGE = PROJECT / "docs/security.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
THREATS = "| threat | barrier | test |"


def threats() -> list[str]:
    """The rows of the table of threats, without its head."""
    table = PAGE.read_text().partition(THREATS)[2].partition("\n\n")[0]
    return [line for line in table.splitlines() if line.startswith("|") and "---" not in line]


def test_each_threat_names_a_test() -> None:
    rows = threats()
    assert len(rows) > 20
    assert [row for row in rows if not TEST.search(row.rpartition(" | ")[2])] == []


def test_the_tests_that_the_page_names_exist() -> None:
    missing = []
    for file, function in TEST.findall(PAGE.read_text()):
        path = PROJECT / file
        if not path.is_file():
            missing.append(file)
            continue
        nodes = ast.walk(ast.parse(path.read_text()))
        names = {
            node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        if function and function not in names:
            missing.append(f"{file}::{function}")
    assert missing == []
