"""Which Pythons and machines can carry the project, and what is said about the others."""

import os
import sys
from typing import Any

import pytest

from tests.habits.leaks import PROJECT
from tests.ran import python, ran
from tools.check_python import NO_VENV, USABLE, WRONG_MACHINE, WRONG_VERSION, verdict

PI = {
    "version": (3, 11),
    "implementation": "cpython",
    "system": "linux",
    "machine": "aarch64",
    "bits": 64,
    "libc": "glibc",
    "free_threaded": False,
    "has_ensurepip": True,
}


def judged(**different: Any) -> tuple[int, str]:
    return verdict(**{**PI, **different})


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_supported(version: tuple[int, int], machine: str) -> None:
    assert judged(version=version, machine=machine) == (USABLE, "")


@pytest.mark.parametrize(
    ("different", "code", "words"),
    [
        ({"version": (3, 10)}, WRONG_VERSION, "Python 3.10, too old"),
        ({"version": (3, 14)}, WRONG_VERSION, "Python 3.14, too new"),
        ({"version": (3, 13), "free_threaded": True}, WRONG_VERSION, "without the GIL"),
        ({"implementation": "pypy"}, WRONG_VERSION, "of pypy"),
        ({"machine": "armv7l", "bits": 32}, WRONG_MACHINE, "64-bit system"),
        (
            {"bits": 32},
            WRONG_MACHINE,
            "a 32-bit Python",
        ),  # Raspberry Pi OS 32-bit runs a 64-bit kernel
        ({"machine": "riscv64"}, WRONG_MACHINE, "no wheel for riscv64"),
        ({"libc": "musl"}, WRONG_MACHINE, "musl"),
        ({"system": "darwin"}, WRONG_MACHINE, "this is darwin"),
        ({"has_ensurepip": False}, NO_VENV, "sudo apt install python3.11-venv"),
    ],
)
def test_refused_with_what_is_wrong_and_a_remedy(
    different: dict[str, Any], code: int, words: str
) -> None:
    got, reason = judged(**different)
    assert got == code
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
