"""`make shake`: which files it takes, and what counts as a failure."""

import subprocess
import sys

from tests.deploy.tables import Tables
from tools import shake

rows = Tables(__file__)


def test_it_takes_the_test_files_that_are_there() -> None:
    names = ["tests/habits/test_shake.py", "tests/hang.py", "tools/shake.py", ""]
    names += ["tests/habits/test_long_gone.py", "tests/habits/test_shake.py"]
    assert shake.test_files(names) == ["tests/habits/test_shake.py"]


@rows("output", "code", "failures")
def test_what_failed_is_named(output: str, code: int, failures: list[str]) -> None:
    assert shake.failures_of(output, code) == failures


def test_its_busy_loops_end_with_it_however_it_ends() -> None:
    script = "import os\nfrom tools.shake import busy\nwith busy(1): os.kill(os.getpid(), 9)"
    # The loop holds our end of the pipe as long as it lives.
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert ended.returncode == -9
