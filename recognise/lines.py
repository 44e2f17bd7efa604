"""Readings as lines of text: `t,ax,ay,az,gx,gy,gz`, from a file or from standard input.

A line that is no reading is reported and skipped. After a line of unknown names the order of the
columns is unknown, so everything behind it is refused. The length of a line is bounded, and with it
the bytes that are kept between two blocks.
"""

import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COLUMNS = ("t", "ax", "ay", "az", "gx", "gy", "gz")
"""Seconds; acceleration; angular velocity."""
_KNOWN = re.compile(r"(?P<time>t|time|timestamp)|(?P<kind>a|acc_?|g|gyro?_?)(?P<axis>[xyz])")
"""Names that a column may have, in small letters."""
LONGEST_LINE_BYTES = 4096
COMMENT = "#"
_SHOWN = 60
_BEHIND = ", behind the first line; if it holds units, remove it, or begin it with #"
_NOT_TEXT = {
    b"\xff\xfe": "UTF-16; save it as UTF-8",
    b"\xfe\xff": "UTF-16; save it as UTF-8",
    b"\x1f\x8b": "gzip; unpack it first",
    b"PK\x03\x04": "a zip; unpack it first",
    b"BZh": "bzip2; unpack it first",
    b"\xfd7zXZ": "xz; unpack it first",
    b"SQLite format 3": "an SQLite database; write its readings as text",
    b"PAR1": "Parquet; write its readings as text",
    b"{": "JSON; write a line a reading",
    b"[": "JSON; write a line a reading",
}
"""The kind of a file by its first bytes, and what to do."""


@dataclass(frozen=True)
class Block:
    """Readings, float64 (n, 7) in the order of COLUMNS, and the problems of other lines.

    problems: the number of a line, and what is wrong with it; share: how much of the recording has
    been read with this block, 0 to 1; 0 where its length is unknown; refusal: why nothing behind
    these readings can be read, empty where it can; note: what a format allows to leave out.
    """

    readings: NDArray[np.float64]
    problems: tuple[tuple[int, str], ...]
    share: float = 0.0
    refusal: str = ""
    note: str = ""


class _NoReading(Exception):
    """What is wrong with a line."""


class ReadingParser:
    """A parser of lines that come in chunks of bytes."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False
        self._number = 0
        self._names: tuple[str, ...] = COLUMNS
        self._order = tuple(range(len(COLUMNS)))
        self._first = True
        self._refusal = ""

    def take(self, content: bytes) -> Block:
        """Return the readings of the next bytes."""
        *lines, self._rest = (self._rest + content).split(b"\n")
        problems: list[tuple[int, str]] = []
        readings: list[list[float]] = []
        for line in lines:
            if self._refusal:
                break
            try:
                readings += self._reading(line)
            except _NoReading as problem:
                problems.append((self._number, str(problem)))
        if len(self._rest) > LONGEST_LINE_BYTES:
            # The line is not complete: what is kept stays small, and its end is not taken for a
            # reading.
            self._refuse_other_content(self._rest)
            self._rest = b""
            self._skipping = True
        rows = np.array(readings, np.float64).reshape(-1, len(COLUMNS))
        return Block(rows, tuple(problems), refusal=self._refusal)

    def end(self) -> Block:
        """Return the last line, where no newline ends it."""
        return self.take(b"\n")

    def _reading(self, line: bytes) -> list[list[float]]:
        """Return the reading of a line, or none. Raises _NoReading."""
        if not self._skipping:
            self._refuse_other_content(line)
        self._number += 1
        if self._refusal:
            return []
        if self._skipping or len(line) > LONGEST_LINE_BYTES:
            self._skipping = self._first = False
            raise _NoReading(
                f"expected {','.join(COLUMNS)}, got more than {LONGEST_LINE_BYTES} bytes"
            )
        text = line.decode("utf-8", "replace").lstrip("\ufeff").strip()
        is_comment = text.startswith(COMMENT)
        cells = _cells(text.lstrip(COMMENT))
        if not text or (is_comment and not _may_be_names(cells)):
            return []
        is_first = self._first
        self._first = False
        # pandas numbers columns without names: whose they are is unknown.
        is_numbered = is_first and cells == [str(place) for place in range(len(cells))]
        are_numbers = len(cells) == len(COLUMNS) and None not in map(_number, cells)
        if are_numbers and not is_comment and not is_numbered:
            return [[float(cells[place]) for place in self._order]]
        if not is_numbered and not _is_header(cells, is_first):
            excerpt = text[:_SHOWN]
            raise _NoReading(
                f"expected seven numbers {','.join(COLUMNS)}, got {excerpt!r}{_separator(text)}"
            )
        self._header(cells, is_first)
        return []

    def _refuse_other_content(self, line: bytes) -> None:
        """Look at the first line, or at its beginning."""
        if self._number:
            return
        what = next(
            (what for begin, what in _NOT_TEXT.items() if line.lstrip().startswith(begin)), None
        )
        beginning = line[:LONGEST_LINE_BYTES]
        if what is None and b"\0" in beginning:
            what = "bytes that are no text; write its readings as text"
        if what is None and len(line) > LONGEST_LINE_BYTES and b"\r" in beginning:
            what = "the line ends of an old Mac; save it with those of Unix"
        if what is not None:
            self._refusal = f"expected lines of text, {','.join(COLUMNS)}, got {what}"

    def _header(self, cells: Sequence[str], is_first: bool) -> None:
        """Take the names of columns. Raises _NoReading for those that are here already."""
        names = tuple(map(_known, cells))
        excerpt = ",".join(cells)[:_SHOWN]
        if sorted(names) != sorted(COLUMNS):
            why = _separator(excerpt) or (_odd_names(cells) if is_first else _BEHIND)
            self._refusal = (
                f"line {self._number}: expected the names {','.join(COLUMNS)} in any order, got"
                f" {excerpt!r}{why}"
            )
        elif is_first:
            self._names = names
            self._order = tuple(map(names.index, COLUMNS))
        elif names != self._names:
            self._refusal = (
                f"line {self._number}: expected the columns in one order, got other names,"
                f" {excerpt!r}, behind readings; give each recording a file of its own"
            )
        else:
            raise _NoReading(f"expected seven numbers {','.join(COLUMNS)}, got {excerpt!r}")


def _is_header(cells: Sequence[str], is_first: bool) -> bool:
    """Return whether these cells are names of columns.

    The first line is one of names if it has a word that is no number. A later one has words alone,
    at least as many as a reading. A first line of numbers alone may be the end of a line, as a live
    sensor gives it.
    """
    numbers = [_number(word) for word in cells]
    has_words = any(word and number is None for word, number in zip(cells, numbers, strict=True))
    are_words = len(cells) >= len(COLUMNS) and set(numbers) == {None}
    return has_words and (is_first or are_words)


def _known(name: str) -> str:
    """Return which of the columns has this name; empty where none has."""
    match = _KNOWN.fullmatch(name.lower())
    if match is None:
        return ""
    return "t" if match["time"] else f"{match['kind'][0]}{match['axis']}"


def _cells(text: str) -> list[str]:
    """Return the words between commas, without the quotes around them."""
    cells = text.split(",")
    with suppress(csv.Error):
        cells = next(csv.reader([text], skipinitialspace=True), cells)
    return [word.strip() for word in cells]


def _may_be_names(cells: Sequence[str]) -> bool:
    """Return whether a comment is a line of names, as numpy.savetxt writes them."""
    are_words = all(word and " " not in word and _number(word) is None for word in cells)
    return are_words and len(cells) >= len(COLUMNS)


def _number(word: str) -> float | None:
    try:
        if "_" in word:
            return None
        return float(word)
    except ValueError:
        return None


def _separator(text: str) -> str:
    """Return a hint for a line with other marks between its numbers, or an empty text."""
    if "\r" in text:
        return " with the line ends of an old Mac; save it with those of Unix"
    marks = {"semicolons": ";", "tabs": "\t"}
    mark = next((name for name, mark in marks.items() if mark in text), "")
    if not mark and "," not in text and len(text.split()) >= len(COLUMNS):
        mark = "spaces"
    if mark:
        return f" with {mark}; separate with commas, and write 0.5 for a half"
    return ""


def _odd_names(cells: Sequence[str]) -> str:
    """Return what to do about names that are not the seven."""
    if not cells[-1] and len(cells) == len(COLUMNS) + 1:
        return "; remove the comma at the end of each line"
    if list(cells) == [str(place) for place in range(len(cells))]:
        return ", the numbers of columns; write their names"
    if "" in cells and len(cells) >= len(COLUMNS):
        return "; remove the column without a name"
    if any(_number(word) is not None for word in cells):
        return "; a reading is seven numbers, its time in seconds"
    names = [word.lower() for word in cells]
    twice = next((word for word in names if names.count(word) > 1), None)
    if twice is not None:
        return f", {twice!r:.40} twice; keep these seven columns, each once"
    return f"; rename the columns, keep these seven, and begin a comment with {COMMENT}"
