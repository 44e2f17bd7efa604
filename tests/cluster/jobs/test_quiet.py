"""What reaches the terminal while TensorFlow is loaded."""

import os
import subprocess
import sys

from core.engine.environment import KNOWN
from tests.cluster.jobs.cluster import PROJECT

SCRIPT = """
import os, sys
from core.engine.environment import KNOWN, loading_quietly
os.write(2, b"before\\n")
with loading_quietly():
    for known in KNOWN:
        os.write(2, b"I0000 00:00 1 port.cc:153] " + known + b" You may see\\n")
    print("from Python", file=sys.stderr, flush=True)
    os.write(2, b"no end of line")
    if "abort" in sys.argv:
        os.abort()
os.write(2, b"\\nafter\\n")
"""


def errors_of(*arguments: str, level: str | None = None) -> tuple[int, str]:
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    if level is not None:
        environment["TF_CPP_MIN_LOG_LEVEL"] = level
    child = subprocess.run(
        [sys.executable, "-X", "faulthandler=0", "-c", SCRIPT, *arguments],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return child.returncode, child.stderr


def test_known_lines_stay_away_and_all_others_arrive_in_order() -> None:
    assert errors_of() == (0, "before\nfrom Python\nno end of line\nafter\n")


def test_what_a_library_says_when_it_aborts_arrives_too() -> None:
    code, errors = errors_of("abort")
    assert code == -6
    assert errors.startswith("before\nfrom Python\nno end of line")


def test_who_asks_tensorflow_to_talk_hears_everything() -> None:
    _, errors = errors_of(level="0")
    assert all(known.decode() in errors for known in KNOWN)


def test_without_a_standard_error_it_does_without() -> None:
    quietly = (
        "from core.engine.environment import loading_quietly\nwith loading_quietly(): print(1)"
    )
    script = f"import os; os.close(2); {quietly}"
    child = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=False
    )
    assert (child.returncode, child.stdout) == (0, "1\n")
