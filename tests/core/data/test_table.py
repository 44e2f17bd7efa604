"""Bulk parsing says the same as reading line by line."""

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.data.uci_har import lines_of_rows, parse_table
from core.ground.errors import DataError


@given(
    content=st.text("0123456789.-+einfa#_ \t\r\n\0\x0b\x85\xff", max_size=80).map(
        lambda text: text.encode("latin-1")
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
