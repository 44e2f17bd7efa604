import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deploy.logs.journal import JournalLine, parse_line


def entry(**changes: object) -> str:
    said = {
        "__REALTIME_TIMESTAMP": "1800000000123456",
        "_SYSTEMD_UNIT": "pscluster-worker-3.service",
        "MESSAGE": "serves on port 2223",
    }
    return json.dumps(said | changes)


def test_a_line_of_journalctl() -> None:
    line = parse_line("rpi04", entry())
    assert line == JournalLine(1800000000.123456, "rpi04", "worker-3", "serves on port 2223")


def test_what_systemd_says_of_a_unit_is_the_unit_s() -> None:
    line = parse_line("rpi04", entry(_SYSTEMD_UNIT="init.scope", UNIT="pscluster-ps-0.service", MESSAGE="Started it."))
    assert line is not None
    assert (line.unit, line.text) == ("ps-0", "Started it.")
    job = parse_line("rpi04", entry(_SYSTEMD_UNIT="pscluster-job@20261121-train.service"))
    assert job is not None
    assert job.unit == "job@20261121-train"


def test_bytes_that_are_no_text() -> None:
    line = parse_line("rpi04", entry(MESSAGE=[104, 105, 255]))
    assert line is not None
    assert line.text == "hi\ufffd"


def test_a_line_too_long_for_journalctl_is_told_as_one() -> None:
    line = parse_line("rpi04", entry(MESSAGE=None))
    assert line is not None
    assert line.text == "(a line of more than 4096 bytes)"


NO_LINES: Sequence[Any] = [
    *("", "-- No entries --", "[]", "null", "3", '{"MESSAGE": "x"}', entry()[:-5]),
    *(entry(__REALTIME_TIMESTAMP="x"), entry(MESSAGE=[1, "x"]), entry(MESSAGE=[300])),
]


def test_what_is_no_line_is_left_out() -> None:
    for text in NO_LINES:
        assert parse_line("rpi04", text) is None


@given(text=st.text(max_size=80))
def test_nothing_that_comes_raises(text: str) -> None:
    parse_line("rpi04", text)
