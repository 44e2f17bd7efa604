import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.logs.sources import JournalLine, parse_line

AT = 1800000000.123456


def entry(**changes: object) -> str:
    said = {
        "__REALTIME_TIMESTAMP": "1800000000123456",
        "_SYSTEMD_UNIT": "pscluster-worker-3.service",
        "MESSAGE": "serves on port 2223",
    }
    return json.dumps(said | changes)


LINES: dict[str, tuple[dict[str, object], JournalLine]] = {
    "of a role": ({}, JournalLine(AT, "rpi04", "worker-3", "serves on port 2223")),
    "of systemd about a unit": (
        {"_SYSTEMD_UNIT": "init.scope", "UNIT": "pscluster-ps-0.service", "MESSAGE": "Started it."},
        JournalLine(AT, "rpi04", "ps-0", "Started it."),
    ),
    "of a job": (
        {"_SYSTEMD_UNIT": "pscluster-job@20261121-train.service", "MESSAGE": "x"},
        JournalLine(AT, "rpi04", "job@20261121-train", "x"),
    ),
    "bytes that are no text": (
        {"MESSAGE": [104, 105, 255]},
        JournalLine(AT, "rpi04", "worker-3", "hi\ufffd"),
    ),
    "too long for journalctl": (
        {"MESSAGE": None},
        JournalLine(AT, "rpi04", "worker-3", "(a line of more than 4096 bytes)"),
    ),
}


@pytest.mark.parametrize(("fields", "line"), LINES.values(), ids=LINES)
def test_a_line_of_journalctl(fields: dict[str, object], line: JournalLine) -> None:
    assert parse_line("rpi04", entry(**fields)) == line


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
