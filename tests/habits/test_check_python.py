"""Which Pythons and machines can carry the project, and what is said about the others."""

import os
import sys
from typing import Any

import pytest

from tests.deploy.tables import Tables
from tests.habits.leaks import PROJECT
from tests.ran import python, ran
from tests.tables import table
from tools import check_python
from tools.check_python import USABLE, verdict

rows = Tables(__file__)
PI = table("habits/tables", "a_pi")


def judged(**different: Any) -> tuple[int, str]:
    facts = {**PI, **different}
    facts["version"] = tuple(facts["version"])
    return verdict(**facts)


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
@pytest.mark.parametrize("minor", [11, 12, 13])
def test_supported(minor: int, machine: str) -> None:
    assert judged(version=(3, minor), machine=machine) == (USABLE, "")


@rows("different", "code", "words")
def test_refused_with_what_is_wrong_and_a_remedy(
    different: dict[str, Any], code: str, words: str
) -> None:
    got, reason = judged(**different)
    assert got == getattr(check_python, code)
    assert words in reason
    assert ":" in reason


def test_the_python_that_runs_the_tests_is_usable() -> None:
    script = PROJECT / "tools" / "check_python.py"
    said = python(script)
    version, executable = said.strip().split(" ", 1)
    assert version == ".".join(map(str, sys.version_info[:3]))
    assert executable == os.path.realpath(executable)
    assert ran(executable, script).stdout == said
    inside = "import sys; print(sys.prefix == sys.base_prefix)"
    assert ran(executable, "-c", inside).stdout == "True\n"
