"""A CSV file with a line of column names, read through the standard library, a chunk of lines at a time."""

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.data.archive import one_line, unreadable
from cluster.data.batch import Examples
from cluster.data.column_map import examples_of
from cluster.data.reader import Reader
from cluster.data.recordings import Cutting, Report, silent
from cluster.data.table_file import Chunk, TableFile, is_number, rows_at_once
from cluster.errors import DataError

DELIMITERS = ",;\t|"
TEXTS_AT_ONCE = 32_000
"""Values of a chunk, some 70 bytes each as a str of Python. Two chunks are there at a time: one read, one used."""
LONGEST_LINE = 2**20
"""Of the first line, in characters."""


class CsvFile(TableFile):
    """UTF-8, separated by commas, semicolons, tabs or bars, whichever the first line has most of.

    A column holds numbers where its first row holds one.
    """

    def __init__(self, path: Path, usual: Sequence[str] = ()) -> None:
        """`usual`: names of a file whose first line is a row, so as many values, the first of them a number.

        Raises DataError for a file without names of columns and a row.
        """
        self.where, self._path = str(path), path
        with self._opened() as (stream, _):
            try:
                self._delimiter = max(DELIMITERS, key=stream.readline(LONGEST_LINE).count)
            except UnicodeDecodeError as problem:
                raise self._not_utf8(problem) from None
        names: list[str] = []
        self.words = frozenset()
        self._lines_of_names = 1
        for line, row in self._rows():
            if not names and usual and len(row) == len(usual) and is_number(row[0]):
                names, self._lines_of_names = list(usual), 0
            if names:
                self._same_width(line, row, names)
                self.words = frozenset(name for name, value in zip(names, row, strict=True) if not is_number(value))
                break
            names = [name.strip() for name in row]
        else:
            raise DataError(f"{path}: expected a line of column names and rows below it, got neither; export it again")
        for position, name in enumerate(names):
            if not name or name in names[:position] or is_number(name):
                raise DataError(
                    f"{path}:1: expected a name for each column, each once, got {name!r:.60} as column "
                    f"{position + 1}; "
                    f"add a first line of names"
                )
        self.names = tuple(names)

    def place(self, number: int) -> str:
        """See TableFile."""
        return f"{self._path}:{number}"

    def chunks(self, columns: Sequence[str], report: Report = silent) -> Iterator[Chunk]:
        """See TableFile."""
        positions = {name: self.names.index(name) for name in columns}
        at_once = rows_at_once(len(self.names), TEXTS_AT_ONCE)
        places: list[int] = []
        rows: list[list[str]] = []

        def chunk() -> Chunk:
            return Chunk(tuple(places), {name: [row[at] for row in rows] for name, at in positions.items()})

        for line, row in self._rows(report, skip=self._lines_of_names):
            self._same_width(line, row, self.names)
            places.append(line)
            rows.append(row)
            if len(rows) >= at_once:
                yield chunk()
                places, rows = [], []
        if rows:
            yield chunk()

    def _same_width(self, line: int, row: Sequence[str], names: Sequence[str]) -> None:
        if len(row) != len(names):
            raise DataError(
                f"{self.place(line)}: expected {len(names)} values as the first line names, got {len(row)}; correct "
                f"the line"
            )

    def _rows(self, report: Report = silent, skip: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Each row that is not blank with the number of its last line."""
        with self._opened() as (stream, raw):
            reader = csv.reader(stream, delimiter=self._delimiter, strict=True)
            size = max(1, self._path.stat().st_size)
            try:
                for number, row in enumerate(row for row in reader if row):
                    if number >= skip:
                        yield reader.line_num, row
                    if not number % 4096:
                        report("reading", min(size, max(1, raw.tell())), size)
            except csv.Error as problem:
                raise DataError(f"{self.place(reader.line_num)}: {one_line(problem)}; correct the line") from None
            except UnicodeDecodeError as problem:
                raise self._not_utf8(problem) from None

    def _not_utf8(self, problem: UnicodeDecodeError) -> DataError:
        """The text is decoded far ahead of its rows, so the line is looked for here."""
        with self._path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    line.decode()
                except UnicodeDecodeError as found:
                    return DataError(
                        f"{self.place(number)}: expected UTF-8, got {one_line(found)[:80]}; save it as UTF-8"
                    )
        return DataError(f"{self._path}: expected UTF-8, got {one_line(problem)[:80]}; save it as UTF-8")

    @contextmanager
    def _opened(self) -> Iterator[tuple[io.TextIOWrapper, Any]]:
        try:
            raw = self._path.open("rb")
        except OSError as problem:
            raise unreadable(self._path, problem) from None
        with raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as stream:
            yield stream, raw


def read(path: Path, cutting: Cutting, report: Report) -> Examples:
    """The rows, as `examples_of` makes them. Raises DataError naming line, column and remedy."""
    return examples_of(CsvFile(path), cutting.columns, report)


class Csv(Reader):
    """See the module."""

    name = "csv"
    accepted = "a .csv"
    is_what = "[a table](data-formats.md#tables) with a line of names: numbers and words, a target, whole groups"
    windows_are_cut = "no windows: float32 (inputs,)"
    marker = None
    suffix = None
    usual_names = ()
    settings = ("columns",)
    read = staticmethod(read)

    @staticmethod
    def recognizes(path: Path) -> bool:
        """See Reader."""
        return path.is_file() and path.suffix.lower() == ".csv"
