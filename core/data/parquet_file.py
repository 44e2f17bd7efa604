"""A Parquet file, read through pyarrow, a chunk of rows at a time."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.archive import one_line
from core.data.batch import Examples
from core.data.column_map import examples_of
from core.data.reader import Reader
from core.data.recordings import Cutting, Report, silent
from core.data.table_file import INDEX, Chunk, TableFile, rows_at_once
from core.errors import DataError


class ParquetFile(TableFile):
    """Columns of numbers, of true and false, and of words."""

    def __init__(self, path: Path) -> None:
        """Raises DataError for what pyarrow cannot open, or where it is not installed."""
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise DataError(
                f"{path}: Parquet needs pyarrow, which is not installed; run `pip install pyarrow`,"
                " or save a .csv"
            ) from None
        self.where = str(path)
        self._path = path
        self._arrow = pyarrow
        self._damage = (pyarrow.ArrowException, OSError, ValueError)
        try:
            self._file = parquet.ParquetFile(path)
            schema = self._file.schema_arrow
        except self._damage as problem:
            raise DataError(
                f"{path}: not a Parquet file ({one_line(problem)[:80]}); save it again"
            ) from None
        self._types = {field.name: field.type for field in schema}
        if len(self._types) != len(schema):
            twice = next(name for name in schema.names if schema.names.count(name) > 1)
            raise DataError(
                f"{path}: {twice!r:.60}: expected each column once, got it twice; rename one"
            )
        self.names = tuple(self._types)
        self.index = frozenset(
            name for name in self.names if name in _index_of(schema) or INDEX.fullmatch(name)
        )
        self.words = frozenset(
            name for name, kind in self._types.items() if not self._is_numeric(kind)
        )

    def place(self, number: int) -> str:
        """Name the place of a row."""
        return f"{self._path}: row {number}"

    def chunks(self, columns: Sequence[str], report: Report = silent) -> Iterator[Chunk]:
        """Yield the chunks of the file."""
        for name in columns:
            self._refuse_strange(name)
        first = 0
        total = self._file.metadata.num_rows
        batches = self._file.iter_batches(
            rows_at_once(len(columns)), columns=list(dict.fromkeys(columns))
        )
        while (batch := self._next(batches)) is not None:
            found = {name: self._values(name, batch.column(name), first) for name in columns}
            yield Chunk(range(first, first + batch.num_rows), found)
            first += batch.num_rows
            report("reading", first, total)

    def _next(self, batches: Iterator[Any]) -> Any:
        try:
            return next(batches, None)
        except self._damage as problem:
            raise DataError(
                f"{self._path}: damaged ({one_line(problem)[:80]}); save it again"
            ) from None

    def _values(self, name: str, column: Any, first: int) -> Sequence[str] | NDArray[np.float64]:
        if column.null_count:
            row = first + column.is_null().to_pylist().index(True)
            raise DataError(
                f"{self.place(row)}: {name}: expected a value, got null; fill it in, or remove"
                " the row"
            )
        if name in self.words:
            words: list[str] = column.cast(self._arrow.string()).to_pylist()
            return words
        numbers: NDArray[np.float64] = column.cast(self._arrow.float64(), safe=False).to_numpy(
            zero_copy_only=False
        )
        return numbers

    def _is_numeric(self, kind: Any) -> bool:
        types = self._arrow.types
        return any(
            check(kind)
            for check in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
        )

    def _refuse_strange(self, name: str) -> None:
        types = self._arrow.types
        kind = self._types[name]
        if types.is_dictionary(kind):
            inner = kind.value_type
        else:
            inner = kind
        if name in self.words and not (types.is_string(inner) or types.is_large_string(inner)):
            raise DataError(
                f"{self._path}: {name}: expected numbers or words, got {kind}; convert the column,"
                " or name the other columns in jobs.train.data.columns.inputs"
            )


def _index_of(schema: Any) -> frozenset[str]:
    """The columns that pandas wrote as the index of its rows."""
    try:
        named = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        return frozenset()
    return frozenset(name for name in named if isinstance(name, str))


def read(path: Path, cutting: Cutting, report: Report) -> Examples:
    """The rows, as `examples_of` makes them.

    Raises DataError naming row (from 0), column and remedy.
    """
    return examples_of(ParquetFile(path), cutting.columns, report)


class Parquet(Reader):
    """A table in a Parquet file."""

    name = "parquet"
    accepted = "a .parquet"
    is_what = "[a table](data-formats.md#tables) as pyarrow, pandas, polars and Spark write it"
    windows_are_cut = "no windows: float32 (inputs,)"
    marker = None
    suffix = None
    usual_names = ()
    settings = ("columns",)
    read = staticmethod(read)

    @staticmethod
    def recognizes(path: Path) -> bool:
        """Return whether it is a Parquet file."""
        return path.is_file() and path.suffix.lower() == ".parquet"
