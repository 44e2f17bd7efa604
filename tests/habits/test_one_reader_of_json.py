"""JSON that somebody else may have written is read in `core/ground/files.py`, within bounds."""

import ast
import json

import pytest

from core.ground.files import MOST_LEVELS, parsed_json
from tests.habits.sources import modules

OWN = {
    "core/ground/children.py": "a request of the process that started it",
    "core/ground/files.py": "the reader",
    "deploy/rooted/files.py": "of the operator, read as root without our packages",
    "deploy/rooted/jobs.py": "of the operator, read as root without our packages",
}


@pytest.mark.sources
def test_nothing_else_reads_json_of_others() -> None:
    found = {
        path
        for path, tree in modules().items()
        if path.startswith(("cluster/", "core/", "deploy/", "pscluster/", "recognise/"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.loads", "json.load")
    }
    assert found == set(OWN)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 101 + "1" + "}" * 101])
def test_what_is_nested_too_deeply_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parsed_json(text)
    deep = "[" * MOST_LEVELS + "]" * MOST_LEVELS
    assert json.dumps(parsed_json(deep)) == deep
