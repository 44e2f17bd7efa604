"""Readings in a Parquet file, whose columns have names."""

import io
from collections.abc import Iterator
from typing import Any

from core.data.archive import LARGEST_TEXT_BYTES, one_line
from core.data.described.text_rows import AT_ONCE, Rows, TextRows
from core.errors import DataError

PARQUET = ".parquet"
MOST_COLUMNS = 1000


class ParquetRows(TextRows):
    """The readings of one file."""

    def chunks(self) -> Iterator[Rows]:
        """Yield the readings in their order. Raises DataError."""
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise DataError(
                f"{self._member.where}: Parquet needs pyarrow, which is not installed; run `pip"
                " install pyarrow`, or save it as text"
            ) from None
        first = 1
        try:
            file = parquet.ParquetFile(io.BytesIO(self._member.read()))
            names = list(file.schema_arrow.names)
            self._refuse_large(file.metadata.num_columns, _unpacked(file))
            places = self._places(names, 1)
            for batch in file.iter_batches(AT_ONCE):
                moments = map(in_microseconds, batch.columns)
                columns = [map(_word, column.to_pylist()) for column in moments]
                cells = [list(row) for row in zip(*columns, strict=True)]
                yield self._chunk(cells, first, places, len(names))
                first += len(cells)
        except (pyarrow.ArrowException, OSError, ValueError) as problem:
            raise DataError(
                f"{self._member.where}: not a whole Parquet file ({one_line(problem)[:80]}); save"
                " it again"
            ) from None

    def _refuse_large(self, columns: int, unpacked: int) -> None:
        if columns > MOST_COLUMNS or unpacked > LARGEST_TEXT_BYTES:
            raise DataError(
                f"{self._member.where}: {columns} columns and {unpacked} bytes in a group of rows,"
                f" at most {MOST_COLUMNS} and {LARGEST_TEXT_BYTES} are read; write smaller groups"
            )


def _unpacked(file: Any) -> int:
    """Return the most bytes that a group of rows says it unpacks to."""
    groups = range(file.metadata.num_row_groups)
    return max((file.metadata.row_group(one).total_byte_size for one in groups), default=0)


def in_microseconds(column: Any) -> Any:
    """Return a column; its moments in microseconds, which is what Python's have."""
    if str(column.type).startswith("timestamp[ns"):
        import pyarrow

        return column.cast(pyarrow.timestamp("us", column.type.tz), safe=False)
    return column


def _word(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)
