"""The bytes of a text and its lines as values: counted, and bounded where a line never ends."""

import csv
import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, repeat
from operator import attrgetter
from typing import IO, Any

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


NumberedRow = tuple[int, list[str], int]
"""The values of a line, between how many lines of the file were read before and after."""


def numbered_rows(stream: Iterable[str], form: TextForm) -> Iterator[NumberedRow]:
    """Return the values of each line; a quoted value without an end goes over several."""
    rows: Any = lines_of(stream, form)
    if not hasattr(rows, "line_num"):
        return numbered(rows)
    lines_read = map(attrgetter("line_num"), repeat(rows))
    # asked before a line is read, and after
    return zip(lines_read, rows, lines_read, strict=False)


def numbered(rows: Iterable[list[str]]) -> Iterator[NumberedRow]:
    """Return rows that are of one line each."""
    return zip(count(), rows, count(1), strict=False)


def named_rows(text: str) -> Iterable[dict[str, str]]:
    """Return the lines of a text as values by the names that its first line has."""
    return csv.DictReader(text.splitlines())


def _parts(line: str, end: str) -> list[str]:
    """Return the readings of one line."""
    readings = [part for part in line.strip().split(end) if part.strip()]
    return readings or [""]


def names_of(row: Sequence[str], form: TextForm) -> list[str]:
    """Return the names in a line; none where it is blank or a comment."""
    if not any(row) or (form.comment and row[0].startswith(form.comment)):
        return []
    spelled = {name.lower(): name for name in form.names}
    names = [spelled.get(name.strip().lower(), name.strip()) for name in row]
    while names and not names[-1]:
        names.pop()
    return names
