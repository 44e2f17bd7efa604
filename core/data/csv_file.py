"""A CSV file with a line of column names, read a chunk of lines at a time.

The standard library reads it.
"""

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from core.data.archive import one_line, unreadable
from core.data.number_words import is_number
from core.data.recordings import Report, silent
from core.data.table_file import Chunk, TableFile, rows_at_once
from core.errors import DataError

DELIMITERS = ",;\t|"
TEXTS_AT_ONCE = 32_000
"""Values of a chunk, some 70 bytes each as a str of Python. Two chunks are there at a time: one
read, one used."""
LONGEST_LINE = 2**20
"""The longest first line, in characters."""


def delimiter_of(line: str) -> str:
    """Which of the delimiters the first line has most of."""
    return max(DELIMITERS, key=line.count)


class CsvFile(TableFile):
    """UTF-8, separated by commas, semicolons, tabs or bars.

    The separator is the one that the first line has most of.
    """

    def __init__(self, path: Path, usual: Sequence[str] = ()) -> None:
        """Find the names of the columns.

        `usual` are those of a file whose first line is a row: as many values, the first of
        them a number.

        Raises DataError for a file without names of columns and a row.
        """
        self.where = str(path)
        self.names = ()
        self._path = path
        with self._opened() as (stream, _):
            try:
                self._delimiter = delimiter_of(stream.readline(LONGEST_LINE))
            except UnicodeDecodeError as problem:
                raise self._not_utf8(problem) from None
        names: list[str] = []
        self._lines_of_names = 1
        for line, row in self._rows():
            if not names and usual and len(row) == len(usual) and is_number(row[0]):
                names = list(usual)
                self._lines_of_names = 0
            if names:
                self._refuse_other_header(line, row, names)
                break
            names = [name.strip() for name in row]
        else:
            raise DataError(
                f"{path}: expected a line of column names and rows below it, got neither; export it"
                " again"
            )
        seen = set[str]()
        for position, name in enumerate(names):
            self._refuse_name(names, position, name, seen)
            seen.add(name)
        self.names = tuple(names)

    def place(self, number: int) -> str:
        """Name the place of a row."""
        return f"{self._path}:{number}"

    def chunks(self, columns: Sequence[str], report: Report = silent) -> Iterator[Chunk]:
        """Yield the chunks of the file."""
        positions = {name: self.names.index(name) for name in columns}
        at_once = rows_at_once(len(self.names), TEXTS_AT_ONCE)
        places: list[int] = []
        rows: list[list[str]] = []

        def chunk() -> Chunk:
            return Chunk(
                tuple(places), {name: [row[at] for row in rows] for name, at in positions.items()}
            )

        for line, row in self._rows(report, skip=self._lines_of_names):
            self._same_width(line, row, self.names)
            places.append(line)
            rows.append(row)
            if len(rows) >= at_once:
                yield chunk()
                places = []
                rows = []
        if rows:
            yield chunk()

    def _refuse_name(
        self, names: Sequence[str], position: int, name: str, seen: Collection[str]
    ) -> None:
        if name and name not in seen and not is_number(name):
            return
        if name and not is_number(name):
            remedy = f"rename it, it is also column {names.index(name) + 1}"
        elif name:
            remedy = "add a first line of names"
        elif position + 1 == len(names) and position:
            remedy = f"name it, or remove the {self._delimiter!r} at the end of each line"
        else:
            remedy = "name the column, or drop it"
        raise DataError(
            f"{self._path}:1: expected a name for each column, each once, got {name!r:.60} as"
            f" column {position + 1}; {remedy}"
        )

    def _refuse_other_header(self, line: int, row: Sequence[str], names: Sequence[str]) -> None:
        """Raises DataError where the first line is no header of the first row."""
        if names[0].lower().startswith("sep="):
            raise DataError(
                f"{self._path}:1: expected a name for each column, got Excel's 'sep='; remove the"
                " line"
            )
        if len(row) == len(names):
            return
        if len(row) == len(names) + 1 and not row[-1]:
            self._same_width(line, row, names)
        raise DataError(
            f"{self._path}:1: expected a name for each of the {len(row)} values of line {line}, got"
            f" {len(names)}: {self._delimiter.join(names)!r:.80}; if it is a comment, a title,"
            f" units or `sep=`, remove it, else correct line {line}"
        )

    def _same_width(self, line: int, row: Sequence[str], names: Sequence[str]) -> None:
        if len(row) != len(names):
            remedy = "correct the line"
            if len(row) == len(names) + 1 and not row[-1]:
                remedy = f"remove the {self._delimiter!r} at the end of the line"
            raise DataError(
                f"{self.place(line)}: expected {len(names)} values as the first line names, got"
                f" {len(row)}; {remedy}"
            )

    def _rows(self, report: Report = silent, skip: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Each row that is not blank with the number of its last line."""
        with self._opened() as (stream, raw):
            reader = csv.reader(stream, delimiter=self._delimiter, strict=True)
            size = max(1, self._path.stat().st_size)
            try:
                for number, row in enumerate(self._single_lines(reader)):
                    if number >= skip:
                        yield reader.line_num, row
                    if not number % 4096:
                        report("reading", min(size, max(1, raw.tell())), size)
            except csv.Error as problem:
                raise DataError(
                    f"{self.place(reader.line_num)}: {one_line(problem)}; correct the line"
                ) from None
            except UnicodeDecodeError as problem:
                raise self._not_utf8(problem) from None

    def _single_lines(self, reader: Any) -> Iterator[list[str]]:
        """Each row that is not blank. Raises DataError for a value that has rows in it.

        An open quote makes one value of all lines up to the next one.
        """
        last = 0
        for row in reader:
            if reader.line_num > last + 1 and self._has_rows(row):
                raise DataError(
                    f"{self.place(last + 1)}: a quoted value goes over {reader.line_num - last}"
                    " lines, which look like rows; close the quote"
                )
            last = reader.line_num
            if row:
                yield row

    def _has_rows(self, row: Sequence[str]) -> bool:
        """Return whether a line of a value has as many separators as a row of the table."""
        least = max(1, len(self.names) - 1)
        lines = [line for cell in row for line in cell.splitlines()[1:]]
        return any(line.count(self._delimiter) >= least for line in lines)

    def _not_utf8(self, problem: UnicodeDecodeError) -> DataError:
        """The text is decoded far ahead of its rows, so the line is looked for here."""
        with self._raw() as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    line.decode()
                except UnicodeDecodeError as found:
                    return DataError(
                        f"{self.place(number)}: expected UTF-8, got {one_line(found)[:80]}; save it"
                        " as UTF-8"
                    )
        return DataError(
            f"{self._path}: expected UTF-8, got {one_line(problem)[:80]}; save it as UTF-8"
        )

    @contextmanager
    def _opened(self) -> Iterator[tuple[io.TextIOWrapper, Any]]:
        with self._raw() as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as stream:
            yield stream, raw

    @contextmanager
    def _raw(self) -> Iterator[IO[bytes]]:
        """The bytes of the table."""
        try:
            raw = self._path.open("rb")
        except OSError as problem:
            raise unreadable(self._path, problem) from None
        with raw:
            yield raw
