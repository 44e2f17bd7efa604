"""Lines of readings: any chunks, names of columns, and lines that are none."""

from itertools import cycle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.data.intake import rate_of
from recognise.lines import COLUMNS, LONGEST_LINE_BYTES, Block, ReadingParser
from tests.tables import table


def taken(content: bytes, sizes: list[int]) -> tuple[list[list[float]], list[tuple[int, str]]]:
    """Readings and problems; a refusal is a last problem without a line."""
    lines = ReadingParser()
    blocks: list[Block] = []
    start = 0
    for size in cycle(sizes):
        if start >= len(content):
            break
        blocks.append(lines.take(content[start : start + size]))
        start += size
    blocks.append(lines.end())
    readings = [row for block in blocks for row in block.readings.tolist()]
    problems = [problem for block in blocks for problem in block.problems]
    if refusal := blocks[-1].refusal:
        problems.append((0, refusal))
    return readings, problems


LINE = st.one_of(
    st.just(b"1,2,3,4,5,6,7"),
    st.just(b"t,ax,ay,az,gx,gy,gz"),
    st.just(b""),
    st.just(b"\xff,1"),
    st.just(b"0.5,1,1,1,1,1,1\r"),
    st.binary(max_size=40),
    st.integers(4000, 9000).map(lambda size: b"9" * size),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(LINE, max_size=8),
    st.booleans(),
    st.lists(st.integers(1, 6000), min_size=1, max_size=4),
)
def test_chunks_change_nothing(lines: list[bytes], ends: bool, sizes: list[int]) -> None:
    content = b"\n".join(lines) + (b"\n" if ends else b"")
    np.testing.assert_equal(taken(content, sizes), taken(content, [max(1, len(content))]))


@pytest.mark.parametrize("names", table("recognise/lines", "names"))
def test_a_first_line_of_known_names_gives_the_order(names: str) -> None:
    found = taken(names.encode() + b"\n1,5,6,7,2,3,4\n# a pause\n", [7])
    assert found == ([[1, 2, 3, 4, 5, 6, 7]], [])


SEEN = b"0,0,0,1,0,0,0\n"
NAMES = "t,ax,ay,az,gx,gy,gz\n"


@pytest.mark.parametrize(
    ("content", "before", "said"),
    [
        *(
            (text.encode() + b"\n", 0, said)
            for text, said in table("recognise/lines", "refused").items()
        ),
        *(
            (text.encode() + b"\n", 1, said)
            for text, said in table("recognise/lines", "behind").items()
        ),
        (b"0,0,0,1,0,0,0\r" * 400, 0, "an old Mac"),
        (NAMES.encode("utf-16"), 0, "got UTF-16; save it as UTF-8"),
        (NAMES.encode("utf-16-le"), 0, "bytes that are no text"),
        (b"\x1f\x8b\x08" + b"9" * 9000, 0, "got gzip; unpack it first"),
    ],
)
@pytest.mark.parametrize("size", [5, 10_000])
def test_what_has_no_known_order_or_is_no_text_is_refused_as_a_whole(
    content: bytes, before: int, said: str, size: int
) -> None:
    readings, problems = taken(content + SEEN, [size])
    assert len(readings) == before
    ((_, reason),) = problems
    assert said in reason


def test_a_line_of_the_same_names_is_no_other_order() -> None:
    readings, problems = taken(
        b"time,ax,ay,az,gx,gy,gz\n" + SEEN + b"t,ax,ay,az,gx,gy,gz\n" + SEEN, [100]
    )
    assert (len(readings), [number for number, _ in problems]) == (2, [3])
    assert len(COLUMNS) == len(readings[0])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *table("recognise/lines", "left_out").items(),
        ("9" * (LONGEST_LINE_BYTES + 1), "got more than 4096 bytes"),
        ("9" * 100_000, "got more than 4096 bytes"),
    ],
)
def test_a_line_that_is_no_reading_is_told_with_its_number(line: str, said: str) -> None:
    readings, problems = taken(SEEN + line.encode() + b"\n\n1,0,0,1,0,0,0", [1000])
    assert [row[0] for row in readings] == [0.0, 1.0]
    ((number, reason),) = problems
    assert (number, said in reason) == (2, True)


def test_numbers_that_are_not_finite_are_left_to_the_stream() -> None:
    readings, problems = taken(b"0,nan,inf,-inf,0,0,0\n", [100])
    assert not problems
    np.testing.assert_equal(readings, [[0, np.nan, np.inf, -np.inf, 0, 0, 0]])


def test_what_is_kept_of_an_endless_line_is_small() -> None:
    lines = ReadingParser()
    for _ in range(100):
        lines.take(b"1" * 100_000)
        assert len(lines._rest) <= LONGEST_LINE_BYTES


def test_the_rate_is_that_of_the_middle_step() -> None:
    assert rate_of(np.array([0.0, 0.01, 0.02, 5.0, 5.01, np.nan])) == pytest.approx(100.0)
    assert rate_of(np.array([0.0, 0.01])) is None
    assert rate_of(np.array([])) is None
