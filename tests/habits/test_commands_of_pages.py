"""A page names only programs that exist, or first the commit at which they ran."""

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.habits.plain_english import name
from tests.habits.test_pages import BESIDE, PAGES

pytestmark = pytest.mark.sources

PROGRAM = re.compile(r"(?:python -m |`)((?:benchmarks|experiments|tools)(?:\.\w+)+)")
COMMIT = re.compile(r"\bcommit\s+[0-9a-f]{8}\b")


def runs(program: str) -> bool:
    """Say whether `python -m` finds this module and it does something then."""
    try:
        spec = find_spec(program)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{program}.__main__")
    except ModuleNotFoundError:
        return False
    if spec is None or spec.origin is None:
        return False
    last = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body[-1]
    return isinstance(last, ast.If) and ast.unparse(last.test) == "__name__ == '__main__'"


def without_program(text: str) -> Iterator[str]:
    """The programs that a page names, do not exist, and stand behind no commit."""
    commit = COMMIT.search(text)
    for program in PROGRAM.finditer(text):
        if commit is not None and commit.end() < program.start():
            continue
        if not (runs(program[1]) or (program[0][0] == "`" and exists(program[1]))):
            yield program[1]


def exists(module: str) -> bool:
    """Say whether there is a module of this name, a program or none."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def test_a_program_that_a_page_names_exists_or_stands_behind_a_commit() -> None:
    pages = [path for path in [*PAGES, *BESIDE] if path.name != "CHANGELOG.md"]
    absent = {name(path): list(without_program(path.read_text("utf-8"))) for path in pages}
    assert not {page: programs for page, programs in absent.items() if programs}
