"""Lines of readings: any chunks, names of columns, and lines that are none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recognise.lines import LONGEST_LINE_BYTES, Lines, rate_of


def taken(content: bytes, sizes: list[int]) -> tuple[list[list[float]], list[tuple[int, str]]]:
    lines, start, turn = Lines(), 0, 0
    readings: list[list[float]] = []
    problems: list[tuple[int, str]] = []
    blocks = []
    while start < len(content):
        blocks.append(lines.take(content[start : start + sizes[turn % len(sizes)]]))
        start, turn = start + sizes[turn % len(sizes)], turn + 1
    for block in [*blocks, lines.end()]:
        readings += block.readings.tolist()
        problems += block.problems
    return readings, problems


LINE = st.one_of(
    st.just(b"1,2,3,4,5,6,7"), st.just(b"t,ax,ay,az,gx,gy,gz"), st.just(b""), st.just(b"\xff,1"),
    st.just(b"0.5,1,1,1,1,1,1\r"), st.binary(max_size=40), st.integers(4000, 9000).map(lambda size: b"9" * size),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(LINE, max_size=8), st.booleans(), st.lists(st.integers(1, 6000), min_size=1, max_size=4))
def test_chunks_change_nothing(lines: list[bytes], ends: bool, sizes: list[int]) -> None:
    content = b"\n".join(lines) + (b"\n" if ends else b"")
    np.testing.assert_equal(taken(content, sizes), taken(content, [max(1, len(content))]))


def test_a_first_line_of_names_gives_the_order() -> None:
    readings, problems = taken(b"\xef\xbb\xbft,gx,gy,gz,AX,ay,az\n1,5,6,7,2,3,4\n", [7])
    assert (readings, problems) == ([[1, 2, 3, 4, 5, 6, 7]], [])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"1,2,3", "got '1,2,3'"),
        (b"1,2,3,4,5,6,x", "got '1,2,3,4,5,6,x'"),
        (b"1,2,3,4,5,6,", "got '1,2,3,4,5,6,'"),
        (b"t,ax,ay,az,gx,gy,gz", "got 't,ax"),
        (b"9" * (LONGEST_LINE_BYTES + 1), "got more than 4096 bytes"),
        (b"9" * 100_000, "got more than 4096 bytes"),
    ],
)
def test_a_line_that_is_no_reading_is_told_with_its_number(line: bytes, said: str) -> None:
    content = b"0,0,0,1,0,0,0\n" + line + b"\n\n1,0,0,1,0,0,0"
    readings, problems = taken(content, [1000])
    assert [row[0] for row in readings] == [0.0, 1.0]
    ((number, reason),) = problems
    assert (number, said in reason) == (2, True)


def test_numbers_that_are_not_finite_are_left_to_the_stream() -> None:
    readings, problems = taken(b"0,nan,inf,-inf,0,0,0\n", [100])
    assert not problems
    np.testing.assert_equal(readings, [[0, np.nan, np.inf, -np.inf, 0, 0, 0]])


def test_what_is_kept_of_an_endless_line_is_small() -> None:
    lines = Lines()
    for _ in range(100):
        lines.take(b"1" * 100_000)
        assert len(lines._rest) <= LONGEST_LINE_BYTES


def test_the_rate_is_that_of_the_middle_step() -> None:
    assert rate_of(np.array([0.0, 0.01, 0.02, 5.0, 5.01, np.nan])) == pytest.approx(100.0)
    assert rate_of(np.array([0.0, 0.01])) is None
    assert rate_of(np.array([])) is None
