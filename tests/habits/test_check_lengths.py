"""Modules and functions stay small."""

import subprocess
from pathlib import Path

import pytest

from tests.habits import needs
from tools.check_lengths import too_long


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run([needs.tool("git"), "init", "--quiet", str(tmp_path)], check=True)
    return tmp_path


def test_names_the_module_that_is_too_long(repository: Path) -> None:
    (repository / "short.py").write_text("\n" * 400)
    (repository / "long.py").write_text("\n" * 401)
    (repository / "long.md").write_text("\n" * 401)
    (repository / "built.py").write_text("\n" * 401)
    (repository / ".gitignore").write_text("built.py\n")
    found = too_long(repository, ())
    assert [line.split(",")[0] for line in found] == ["long.py: 401 lines"]


def function(name: str, lines: int, indented: str = "") -> str:
    """A function of so many lines, its `def` included; the decorator above it counts for nothing."""
    return f"{indented}@decorated\n{indented}def {name}():\n" + f"{indented}    pass\n" * (lines - 1)


def test_names_the_function_that_is_too_long(repository: Path) -> None:
    methods = "class Room:\n" + function("fits", 70, "    ") + function("is_long", 71, "    ")
    (repository / "room.py").write_text(function("short", 70) + function("long", 71) + methods)
    found = too_long(repository, ())
    assert [line.split(",")[0] for line in found] == [
        "room.py:73: long has 71 lines",
        "room.py:217: is_long has 71 lines",
    ]


def test_names_the_function_with_too_many_parameters_but_no_dataclass(repository: Path) -> None:
    eight, nine = ", ".join("abcdefgh"), ", ".join("abcdefghi")
    fields = "".join(f"    {name}: int\n" for name in "abcdefghi")
    (repository / "room.py").write_text(
        f"def fits({eight}): ...\n"
        f"def long({nine}): ...\n"
        f"async def named(*, {nine}): ...\n"
        f"class Door:\n    def __init__(self, {eight}): ...\n    @classmethod\n    def of(cls, /, {nine}): ...\n"
        f"@dataclass\nclass Message:\n{fields}"
    )
    found = too_long(repository, ())
    assert [line.split(",")[0] for line in found] == [
        "room.py:2: long has 9 parameters",
        "room.py:3: named has 9 parameters",
        "room.py:7: of has 9 parameters",
    ]


def test_what_is_allowed_passes_until_it_is_mended(repository: Path) -> None:
    (repository / "room.py").write_text(function("long", 71))
    assert too_long(repository, ("room.py:long",)) == []
    (repository / "room.py").write_text(function("long", 70))
    assert too_long(repository, ("room.py:long",)) == [
        "tools/check_lengths.py: room.py:long breaks no limit: remove it from ALLOWED"
    ]
