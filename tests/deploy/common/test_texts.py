"""What `filled` makes of a script's file: every value quoted, whatever is in it."""

import subprocess

import pytest
from jinja2 import UndefinedError

from deploy.common.command_line import Inline, filled
from deploy.release.scripts import script

NASTY = "a b'c\"d $(touch /x) `y`; z\n"


def said(made: str) -> str:
    return subprocess.run(
        ["sh", "-s"], input=made, capture_output=True, text=True, check=True
    ).stdout


def test_a_value_stays_one_word() -> None:
    made = filled(
        "release/frame.sh",
        body="converge/interrupt.sh",
        values={"value": NASTY},
        searched="/usr/bin:/bin",
    )
    assert said(made.replace("\nmain\n", '\nprintf %s "$value"\n')).rstrip("\n") == NASTY.rstrip(
        "\n"
    )


def test_the_words_of_a_list_stay_words() -> None:
    made = filled("converge/runs.sh", units=[NASTY, "b c"])
    assert (
        said(made.replace("    pid=", '    printf "<%s>" "$unit"; continue; pid='))
        == f"<{NASTY}><b c>"
    )


def test_shell_of_ours_stands_as_it_is() -> None:
    made = filled("converge/runs.sh", units=Inline("$(echo one two)"))
    assert said(made.replace("    pid=", '    echo "$unit"; continue; pid=')) == "one\ntwo\n"


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="units"):
        filled("converge/runs.sh")


def test_no_value_holds_a_nul_byte() -> None:
    with pytest.raises(ValueError, match="NUL byte"):
        script("release/list.sh", root="/opt\0")
