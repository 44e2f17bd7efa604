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
SPAN = re.compile(r"(?<!`)`((?:--|fab |python -m )[^`]+|[^` ]+)`(?!`)")
NAME = re.compile(
    r"(?<![\w/.-])(?:[a-z][\w-]*/)+[\w-]+\.(?:py|yaml|j2|json|sh|toml|h)\b"  # a file
    r"|(?<![\w-])--[a-z][a-z-]+"  # a flag
    r"|(?<![.\w])[A-Z][a-z]+[A-Z]\w+"  # a class
)
FOLDERS = ["benchmarks", "cluster", "core", "deploy", "experiments", "examples", "inventories"]
FOLDERS += ["kernels", "ps_node", "recognise", "sweeps", "tests", "tools", "worker_node"]
SUFFIXES = (".py", ".json", ".j2", ".yml", ".yaml", ".h", ".sh", ".toml")
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


def absent_names(page: str, sources: str) -> list[str]:
    """Return the files, flags and classes in a page's code that no source has."""
    spans = SPAN.findall(re.sub(r"```.*?```", "", page, flags=re.DOTALL))
    names = NAME.findall("\n".join(spans))
    return [word for word in names if word.lstrip("-").replace("-", "_") not in sources]


def test_a_page_names_files_flags_and_classes_that_exist() -> None:
    sources = "".join(
        f"{path}\n{path.read_text('utf-8')}"
        for folder in FOLDERS
        for path in (PROJECT / folder).rglob("*.*")
        if path.suffix in SUFFIXES and path != Path(__file__)
    ).replace("-", "_")
    pages = [path for path in [*PAGES, *BESIDE] if path.parent.name != "how-to-add"]
    absent = {name(path): absent_names(path.read_text("utf-8"), sources) for path in pages}
    assert not {page: names for page, names in absent.items() if names}
    gone = (
        "`core/gone.py` `fab job --of-yesteryear` `GoneClass` `core/engine/runtime.py` `fab --list`"
    )
    assert absent_names(gone, sources) == ["core/gone.py", "--of-yesteryear", "GoneClass"]
