"""Bulk parsing says the same as reading line by line, and damage is named by its line."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.data.table import lines_of_rows, parse_integers, parse_table
from core.errors import DataError

finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(
    rows=st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=20), blank=st.booleans()
)
def test_numbers_are_read_exactly(rows: list[tuple[float, float, float]], blank: bool) -> None:
    if blank:
        separator = "\r\n\n"
    else:
        separator = "\n"
    text = separator.join(" ".join(map(repr, row)) for row in rows)
    np.testing.assert_array_equal(parse_table(text.encode(), 3, "file"), np.array(rows))


@given(
    content=st.one_of(
        st.binary(max_size=80),
        st.text("0123456789.-+einfa#_ \t\r\n\x0b\x85", max_size=80).map(
            lambda text: text.encode("latin-1")
        ),
    )
)
def test_any_content_is_a_table_of_that_width_or_one_error(content: bytes) -> None:
    try:
        table = parse_table(content, 2, "file")
    except DataError as problem:
        accepted = re.match(r"file(:\d+)?: expected ", str(problem)) is not None
    else:
        assert table.shape == (len(lines_of_rows(content)), 2)
        accepted = bool(np.isfinite(table).all())
    assert accepted


@pytest.mark.parametrize(
    "damage", ["1 2 3", "1", "1 x", "1 nan", "1 inf", "# 2", "1 2_", "1 2_0", "1 \x0b 2 3"]
)
def test_the_line_is_named_whatever_lies_above_it(damage: str) -> None:
    content = f"1 2\n\n \n3 4\n{damage}\n5 6\n".encode()
    with pytest.raises(DataError, match=r"^file:5: expected "):
        parse_table(content, 2, "file")


@pytest.mark.parametrize("word", ["-1", "1.5", "2147483648", "1e300"])
def test_integers_are_whole_and_fit_the_stored_type(word: str) -> None:
    with pytest.raises(DataError, match=r"^file:2: expected a whole number .* in column 1"):
        parse_integers(f"7\n{word}\n".encode(), 1, "file")
    assert parse_integers(b"7\n2147483647\n", 1, "file").dtype == np.int32
