"""The bytes of a text and its lines as values: counted, and bounded where a line never ends."""

import csv
import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import IO

from core.data.archive import SUSPICIOUS_BYTES, SUSPICIOUS_RATIO
from core.data.described.description import TextForm
from core.ground.errors import DataError

SEPARATORS = {"tab": "\t", "space": " "}

LONGEST_LINE_BYTES = 16 * 1024
"""A thousand columns of sixteen characters."""
AT_ONCE_BYTES = 8 * 1024
DAMAGE = (csv.Error, EOFError, OSError, zlib.error, zipfile.BadZipFile)
"""Errors of reading a line that no text has, and a damaged archive."""


class TextBytes(io.BufferedIOBase):
    """What a text is decoded from."""

    def __init__(self, raw: IO[bytes], where: str, stored_bytes: int) -> None:
        """Read `raw`, which takes `stored_bytes` where it lies, before gzip is undone."""
        self._raw = raw
        self.name = where
        self._most = max(SUSPICIOUS_BYTES, SUSPICIOUS_RATIO * stored_bytes)
        self._line_begin = 0
        self.done = 0
        """Bytes that were read."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes, as `read1` does: a decoder asks for no more."""
        return self.read1()

    def readable(self) -> bool:
        """Return true, as a stream of bytes does."""
        return True

    def read1(self, size: int = AT_ONCE_BYTES, /) -> bytes:
        """Return the next bytes. Raises DataError for a line, or a text, without end."""
        chunk = self._raw.read(AT_ONCE_BYTES)
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
        if end >= 0:
            self._line_begin = self.done + end
        self.done += len(chunk)
        if self.done - self._line_begin > LONGEST_LINE_BYTES:
            raise DataError(
                f"{self.name}: a line has more than {LONGEST_LINE_BYTES} bytes, which no reading"
                " takes: describe the file as it is in a format of your own"
            )
        if self.done > self._most:
            raise DataError(
                f"{self.name}: unpacks to more than {SUSPICIOUS_RATIO} times its size, which no"
                " recording does; do not trust this archive"
            )
        return chunk


MOST_BAD = 0.5
"""The most that `bad_lines` may be: more are another form, not damage."""


@dataclass
class Damage:
    """Lines that are no reading: how many of how many, and the first one in words."""

    lines: int = 0
    bad: int = 0
    missing: int = 0
    apart: int = 0
    """Readings of the first sensor without one of each other sensor near."""
    first: str = ""
    clocks: set[str] = field(default_factory=set)
    """Whether dates were written with a zone, without one, or both."""
    bytes_done: int = 0
    """Bytes of the text that is being read."""

    def add(self, place: str, problem: str, lines: int = 1) -> None:
        """Count one, or as many as a value takes."""
        self.bad += lines
        self.first = self.first or f"{place}: {problem}"

    def note(self) -> str:
        """Return what was left out, in words; empty where nothing was."""
        counts = {
            "bad lines": self.bad,
            "readings with a missing value": self.missing,
            "readings without all sensors": self.apart,
        }
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)

    def refuse(self, share: float) -> None:
        """Raises DataError, with the first one, where there are more than `share` of all."""
        if self.bad > share * self.lines:
            remedy = "correct them, or set jobs.train.data.bad_lines"
            if self.bad > MOST_BAD * self.lines:
                remedy = "describe the file as it is in a format of your own"
            raise DataError(
                f"{self.first}; {self.bad} of {self.lines} lines are no readings, and"
                f" {share:.2%} may be: {remedy}"
            )


def lines_of(stream: Iterable[str], form: TextForm) -> Iterator[list[str]]:
    """Yield the values of each line; a line may be none, and is one without values then."""
    if form.end:
        stream_of_lines: Iterable[str] = (
            part for line in stream for part in _parts(line, form.end)
        )
    else:
        stream_of_lines = stream
    if form.separator == "space":
        return (line.split() for line in stream_of_lines)
    return csv.reader(
        stream_of_lines,
        delimiter=SEPARATORS.get(form.separator, form.separator),
        quotechar=form.quote,
        skipinitialspace=True,
    )


class NumberedRows:
    """The values of each line, and the number of the line that they end with."""

    def __init__(self, rows: Iterable[list[str]]) -> None:
        """`rows` as `lines_of` has them, or rows that are of one line each."""
        self._rows = rows
        self._unread = iter(rows)
        self.line = 0
        """Lines that were read."""

    def take(self, most: int) -> tuple[Sequence[int], list[list[str]]]:
        """Return the numbers and the values of the next lines, at most so many.

        A quoted value without an end goes over several lines: the number is that of the last.
        """
        rows = list(islice(self._unread, most))
        before = self.line
        self.line = getattr(self._rows, "line_num", before + len(rows))
        if self.line == before + len(rows):
            return range(before + 1, self.line + 1), rows
        ends = accumulate(1 + sum(cell.count("\n") for cell in row) for row in rows)
        # At the end of the file a quote takes the last line's own end, and no line comes behind.
        return [min(before + end, self.line) for end in ends], rows


def named_rows(text: str) -> Iterable[dict[str, str]]:
    """Return the lines of a text as values by the names that its first line has."""
    return csv.DictReader(text.splitlines())


def _parts(line: str, end: str) -> list[str]:
    """Return the readings of one line."""
    readings = [f"{part}\n" for part in line.strip().split(end) if part.strip()]
    return readings or ["\n"]


def names_of(row: Sequence[str], form: TextForm) -> list[str]:
    """Return the names in a line; none where it is blank or a comment."""
    if not any(row) or (form.comment and row[0].startswith(form.comment)):
        return []
    spelled = {name.lower(): name for name in form.names}
    names = [spelled.get(name.strip().lower(), name.strip()) for name in row]
    while names and not names[-1]:
        names.pop()
    return names
