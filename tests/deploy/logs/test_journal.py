import json

from hypothesis import given
from hypothesis import strategies as st

from deploy.logs.sources import JournalLine, parse_line
from tests.deploy.tables import Tables

rows = Tables(__file__)

AT = 1800000000.123456


def entry(**changes: object) -> str:
    said = {
        "__REALTIME_TIMESTAMP": "1800000000123456",
        "_SYSTEMD_UNIT": "pscluster-worker-3.service",
        "MESSAGE": "serves on port 2223",
    }
    return json.dumps(said | changes)


@rows("fields", "unit", "text")
def test_a_line_of_journalctl(fields: dict[str, object], unit: str, text: str) -> None:
    assert parse_line("rpi04", entry(**fields)) == JournalLine(AT, "rpi04", unit, text)


@rows("text")
def test_what_is_no_line_is_left_out(text: str | dict[str, object]) -> None:
    assert parse_line("rpi04", text if isinstance(text, str) else entry(**text)) is None


@given(text=st.text(max_size=80))
def test_nothing_that_comes_raises(text: str) -> None:
    parse_line("rpi04", text)
