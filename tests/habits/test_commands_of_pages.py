"""A page names only programs that exist, or first the commit at which they ran; and only files,
flags and classes that exist."""

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.habits.plain_english import PROJECT, name
from tests.habits.test_pages import BESIDE, PAGES

pytestmark = pytest.mark.sources

PROGRAM = re.compile(r"(?:python -m |`)((?:benchmarks|experiments|tools)(?:\.\w+)+)")
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
FILE = re.compile(r"(?<![\w/.-])(?:[a-z][\w-]*/)+[\w-]+\.(?:py|yaml|j2|json|sh|toml|h)\b")
FLAG_OR_CLASS = re.compile(r"(?<![\w-])--[a-z][a-z-]+|(?<![.\w])[A-Z][a-z]+[A-Z]\w+")
ROOTS = ("", "core", "cluster", "deploy", "kernels", "experiments", "deploy/monitor")
"""Folders to which a page's paths are relative."""
SOURCES = [
    path
    for folder in ("benchmarks", "cluster", "core", "deploy", "kernels", "recognise", "tests")
    for path in (PROJECT / folder).rglob("*.*")
    if path.suffix in (".py", ".json", ".j2", ".yml") and "habits" not in path.parts
]
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


def absent_names(page: str, sources: str) -> Iterator[str]:
    """The files, flags and classes in a page's spans of code that the project lacks."""
    for span in SPAN.findall(re.sub(r"```.*?```", "", page, flags=re.DOTALL)):
        if " " in span and not span.startswith(("--", "fab ", "python -m ")):
            continue
        for file in FILE.findall(span):
            if not any((PROJECT / root / file).exists() for root in ROOTS):
                yield file
        for word in FLAG_OR_CLASS.findall(span):
            if word not in sources and word[2:].replace("-", "_") not in sources:
                yield word


def test_a_page_names_files_flags_and_classes_that_exist() -> None:
    sources = "".join(path.read_text("utf-8") for path in SOURCES)
    pages = [path for path in [*PAGES, *BESIDE] if path.parent.name != "how-to-add"]
    absent = {name(path): set(absent_names(path.read_text("utf-8"), sources)) for path in pages}
    assert not {page: names for page, names in absent.items() if names}
    gone = (
        "`core/gone.py` `fab job --of-yesteryear` `GoneClass` `core/engine/runtime.py` `fab --list`"
    )
    assert {*absent_names(gone, sources)} == {"core/gone.py", "--of-yesteryear", "GoneClass"}
