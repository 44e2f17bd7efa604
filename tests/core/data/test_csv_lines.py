"""A wrong line of a CSV file is named, and a column is what all its rows are."""

from pathlib import Path
from typing import Any

import pytest

from core.data.csv_file import CsvFile
from tests.core.data.desk import Desk, has, refused, wrong
from tests.core.data.test_tables import ROWS, TABLE


@wrong("csv")
def test_a_damaged_line_is_named(desk: Desk, row: dict[str, Any]) -> None:
    desk.refuses(row["says"], "t.csv", row["text"].encode("latin-1"))


def test_a_line_longer_than_any_field_is_named(desk: Desk) -> None:
    content = f"a,y\n1,0\n{'x' * 200_000},1\n"
    desk.refuses(":3: field larger than field limit", "t.csv", content)


def test_quotes_blank_lines_and_a_mark_of_byte_order_are_read(desk: Desk) -> None:
    rows = "\n\n".join(f'"{row}","a, ""b""\nc",{row % 2}' for row in range(10))
    dataset = desk.read("t.csv", f'\ufeff"a b",word,y\r\n{rows}\r\n')
    has(dataset, input_shape=(2,), labels=("0", "1"))


@wrong("columns")
def test_a_column_is_what_all_its_rows_are(desk: Desk, row: dict[str, Any]) -> None:
    values = row["texts"]
    table = {
        "time": [place / 50 for place in range(ROWS)],
        "value": (values * ROWS)[:ROWS],
        "label": ["a", "b"] * (ROWS // 2),
    }
    desk.refuses(row["says"], "t.csv", table)
    if row.get("words"):
        dataset = desk.read("t.csv", columns={"categories": ["value"]})
        assert dataset.input_shape == (1 + len(set(values)),)


def test_the_line_ends_of_an_old_mac_make_the_same_table(desk: Desk) -> None:
    plain = desk.write("t.csv", TABLE).read_bytes()
    mac = desk.read("mac.csv", plain.replace(b"\n", b"\r"))
    assert mac.sha256 == desk.read("t.csv").sha256


@pytest.mark.timeout(20)
def test_a_header_of_very_many_names_takes_no_more_than_its_length(tmp_path: Path) -> None:
    """Each name against each took minutes."""
    names = ",".join(f"c{number}" for number in range(150_000))
    path = tmp_path / "wide.csv"
    path.write_text(f"{names},c7\n{',' * 150_000}\n", encoding="ascii")
    with refused("wide.csv:1: ... got 'c7' as column 150001; rename it, it is also column 8"):
        CsvFile(path)
