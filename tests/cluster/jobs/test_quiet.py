"""What reaches the terminal while TensorFlow is loaded."""

import os
import sys

from core.engine.environment import KNOWN
from tests.ran import python, ran

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


def errors_of(*arguments: str, level: str | None = None) -> str:
    """Of the script, which ends well or, with an argument, aborts."""
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    if level is not None:
        environment["TF_CPP_MIN_LOG_LEVEL"] = level
    code = -6 if arguments else 0
    words = (sys.executable, "-X", "faulthandler=0", "-c", SCRIPT, *arguments)
    return ran(*words, code=code, environment=environment).stderr


def test_known_lines_stay_away_and_all_others_arrive_in_order() -> None:
    assert errors_of() == "before\nfrom Python\nno end of line\nafter\n"


def test_what_a_library_says_when_it_aborts_arrives_too() -> None:
    assert errors_of("abort").startswith("before\nfrom Python\nno end of line")


def test_who_asks_tensorflow_to_talk_hears_everything() -> None:
    errors = errors_of(level="0")
    assert all(known.decode() in errors for known in KNOWN)


def test_without_a_standard_error_it_does_without() -> None:
    quietly = (
        "from core.engine.environment import loading_quietly\nwith loading_quietly(): print(1)"
    )
    script = f"import os; os.close(2); {quietly}"
    assert python("-c", script) == "1\n"
