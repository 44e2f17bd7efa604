"""What a line holds, and that nothing that is logged can break one."""

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.logs.lines import (
    LONGEST_LINE_CHARACTERS,
    LogFormat,
    LogLine,
    Speaker,
    formatter,
    last_line,
    read_line,
)
from tests.ran import python
from tests.tables import table

AT = 1795305600.9876
WORKER = Speaker("worker:3", "192.168.1.19:2223", "20261121T224500Z-train")
FIELDS = {
    "level": "warning",
    "role": "worker:3",
    "address": "192.168.1.19:2223",
    "run": "20261121T224500Z-train",
}
FORMATS: tuple[LogFormat, ...] = ("text", "json")


def record(
    message: object, *arguments: object, problem: BaseException | None = None
) -> logging.LogRecord:
    if problem:
        trace = (type(problem), problem, problem.__traceback__)
    else:
        trace = None
    made = logging.LogRecord(
        "pscluster.role", logging.WARNING, __file__, 1, message, arguments, trace
    )
    made.created = AT
    return made


def lines(log_format: LogFormat, made: logging.LogRecord, speaker: Speaker = WORKER) -> str:
    return formatter(log_format, speaker).format(made)


def test_every_field_in_both_formats() -> None:
    assert (
        lines("text", record("%d left", 2))
        == "2026-11-22T00:00:00.987Z WARNING worker:3 192.168.1.19:2223 run 20261121T224500Z-train:"
        " 2 left"
    )
    assert json.loads(lines("json", record("%d left", 2))) == {
        "time": "2026-11-22T00:00:00.987Z",
        "logger": "pscluster.role",
        **FIELDS,
        "message": "2 left",
    }


def test_who_has_no_address_and_no_run() -> None:
    idle = Speaker("supervisor")
    assert lines("text", record("up"), idle) == "2026-11-22T00:00:00.987Z WARNING supervisor: up"
    fields = json.loads(lines("json", record("up"), idle))
    assert (fields["address"], fields["run"]) == (None, None)


@pytest.mark.parametrize("log_format", FORMATS)
def test_an_exception_is_in_the_line_and_comes_back(log_format: LogFormat) -> None:
    try:
        raise ValueError("no such\nthing")
    except ValueError as problem:
        text = lines(log_format, record("lost", problem=problem))
    first, *more = text.splitlines()
    if log_format == "json":
        assert not more
        assert json.loads(first)["exception"].endswith("ValueError: no such\nthing")
        read = read_line(first)
        assert read is not None
        assert read.shown.startswith("WARNING lost\nTraceback")
    else:
        assert first.endswith(": lost")
        assert all(line.startswith("    ") for line in more)
        assert all(read_line(line) is None for line in more)


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("%d", ("x",)),
        ("%s %s", (1,)),
        ("%s", (Unspeakable(),)),
        (Unspeakable(), ()),
        ("%", (1,)),
        ("\ud800", ()),
    ],
)
@pytest.mark.parametrize("log_format", FORMATS)
def test_what_cannot_be_formatted_is_a_line_all_the_same(
    log_format: LogFormat, message: object, arguments: tuple[Any, ...]
) -> None:
    text = lines(log_format, record(message, *arguments))
    assert text.encode()
    read = read_line(text)
    assert read is not None
    assert read.level == "warning"


@given(text=st.text(alphabet=st.characters(exclude_categories=())))
def test_json_is_one_whole_line_of_ascii_whatever_is_said(text: str) -> None:
    line = lines("json", record("%s", text))
    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert json.loads(line)["message"] == text.encode("utf-8", "backslashreplace").decode()


@given(text=st.text(alphabet=st.characters(exclude_categories=())))
def test_nothing_that_is_said_looks_like_a_line_of_its_own(text: str) -> None:
    forged = lines("text", record("%s\n%s", text, lines("text", record("forged"))))
    first, *more = forged.split("\n")
    assert read_line(first) is not None
    assert all(read_line(line) is None for line in more)
    assert "\x1b" not in forged


def test_a_line_stays_below_what_the_journal_cuts() -> None:
    line = lines("json", record("%s", "\N{SNOWMAN}" * 100_000))
    assert len(line) <= LONGEST_LINE_CHARACTERS
    assert json.loads(line)["message"].endswith("more characters)")


@pytest.mark.parametrize(
    "speaker", [WORKER, Speaker("ps:0", "[::1]:2222"), Speaker("coordinator:0")]
)
@pytest.mark.parametrize("log_format", FORMATS)
def test_a_line_that_is_read_says_what_was_written(log_format: LogFormat, speaker: Speaker) -> None:
    read = read_line(lines(log_format, record("a: b %s", "c"), speaker))
    assert read is not None
    assert read.seconds == pytest.approx(1795305600.987, abs=1e-6)
    found = {name: value for name, value in read.to_json().items() if value and name != "time"}
    expected = {**vars(speaker), "level": "warning", "message": "a: b c"}
    if log_format == "json":
        expected["logger"] = "pscluster.role"
    assert found == {name: value for name, value in expected.items() if value}


@given(text=st.text(max_size=200) | st.text(max_size=60).map(lambda text: "{" + text))
def test_nothing_that_is_read_raises(text: str) -> None:
    read_line(text)


@pytest.mark.parametrize("text", [*table("core/logs/tables", "no lines"), "{" * 100_000])
def test_what_is_no_line(text: str) -> None:
    assert read_line(text) is None


def test_the_lines_of_tensorflow_have_a_time_too() -> None:
    read = read_line("2026-01-02 03:04:05.678901: I tensorflow/core/x.cc:1] Started")
    assert read == LogLine(read.seconds if read else 0.0, "I tensorflow/core/x.cc:1] Started")


def test_the_last_line_of_a_process() -> None:
    idle = Speaker("ps:0", "127.0.0.1:2222")
    assert (
        last_line("text", idle, "port 2222 is taken") == "ps:0 127.0.0.1:2222: port 2222 is taken"
    )
    fields = json.loads(last_line("json", idle, "port 2222 is taken"))
    assert (fields["level"], fields["message"]) == ("error", "port 2222 is taken")


UNFORESEEN = """
import logging, warnings
from core.logs.lines import LogSettings, Speaker, begin
begin(Speaker("ps:0"), LogSettings("json", "warning"))
logging.getLogger("cluster.x").info("left out")
warnings.warn("old")
raise IndexError("17")
"""


def test_what_python_says_by_itself_is_json_too() -> None:
    said = python("-c", UNFORESEEN, code=1)
    warned, crashed = (json.loads(line) for line in said.splitlines())
    assert (warned["level"], warned["logger"]) == ("warning", "py.warnings")
    assert (crashed["level"], crashed["message"]) == ("critical", "IndexError: 17")
    assert crashed["exception"].startswith("Traceback")
