"""`make shake`: which files it takes, and what counts as a failure."""

import subprocess
import sys

import pytest

from tools import shake


def test_it_takes_the_test_files_that_are_there() -> None:
    names = ["tests/habits/test_shake.py", "tests/hang.py", "tools/shake.py", ""]
    names += ["tests/habits/test_long_gone.py", "tests/habits/test_shake.py"]
    assert shake.test_files(names) == ["tests/habits/test_shake.py"]


SUMMARY = """...F [100%]
FAILED tests/a/test_b.py::test_c - assert 1 == 2
ERROR tests/a/test_b.py::test_d
1 failed, 3 passed, 1 error in 0.1s
"""


@pytest.mark.parametrize(
    ("output", "code", "failures"),
    [
        ("4 passed in 0.1s\n", 0, []),
        ("4 deselected in 0.1s\n", 5, []),
        (
            SUMMARY,
            1,
            [
                "FAILED tests/a/test_b.py::test_c - assert 1 == 2",
                "ERROR tests/a/test_b.py::test_d",
            ],
        ),
        ("usage: pytest\n", 4, ["pytest ended with exit code 4: usage: pytest"]),
        ("", -9, ["pytest ended with exit code -9: no output"]),
    ],
)
def test_what_failed_is_named(output: str, code: int, failures: list[str]) -> None:
    assert shake.failures_of(output, code) == failures


def test_its_busy_loops_end_with_it_however_it_ends() -> None:
    script = "import os\nfrom tools.shake import busy\nwith busy(1): os.kill(os.getpid(), 9)"
    # The loop holds our end of the pipe as long as it lives.
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert ended.returncode == -9
