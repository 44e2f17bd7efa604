"""A run of pytest with tests/conftest.py says what its tests left behind, and what was missing."""

import os
import sys
from pathlib import Path

import pytest

from tests.ran import PROJECT, ran

TESTS = {
    "conftest.py": "from tests.conftest import *\n",
    "test_leaky.py": (
        "import pathlib\ndef test_leaky():\n    pathlib.Path('forgotten.json').touch()\n"
    ),
    "test_it.py": (
        "from tests.habits import needs\n"
        "def test_a():\n    needs.skip(needs._TOOL.format(name='sshd'))\n"
        "def test_b():\n    needs.possible('')\n"
        "def test_c():\n    needs.skip(needs._TOOL.format(name='sshd'))\n"
        "def test_d():\n    needs.skip(needs._TOOL.format(name='systemd-analyze'))\n"
        "def test_e():\n    needs.skip(needs._ROOT.format(purpose='mounts'))\n"
        "def test_f():\n    needs.skip('the real recordings are not here')\n"
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run")
    for name, text in TESTS.items():
        (made / name).write_text(text)
    return made


@pytest.fixture(scope="module")
def lines(folder: Path) -> list[str]:
    """What the run says."""
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, *words, "-c", os.devnull, str(folder)]
    done = ran(*command, code=1, folder=folder, environment=environment)
    return done.stdout.splitlines()


def test_a_leak_fails_the_file_of_tests_that_left_it(folder: Path, lines: list[str]) -> None:
    left = f"the tests of this file left behind: file {folder / 'forgotten.json'}"
    assert any(left in line for line in lines)


def test_the_line_about_what_was_missing_stands_at_the_end(lines: list[str]) -> None:
    assert lines[-1].startswith("2 passed, 5 skipped, 1 error")
    said = (
        "skipped: 3 without sshd (2), systemd-analyze (1): `make test-tools` fetches what Debian"
        " has; 1 that need root: `sudo make test` runs them"
    )
    assert said in lines[-7:]
