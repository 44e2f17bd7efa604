"""Readings in a Parquet file, whose columns have names."""

import io
from collections.abc import Iterator
from typing import Any

from core.data.archive import LARGEST_TEXT_BYTES, one_line
from core.data.described.text_rows import AT_ONCE, Rows, TextRows
from core.ground.errors import DataError

PARQUET = ".parquet"
MOST_COLUMNS = 1000


class ParquetRows(TextRows):
    """The readings of one file."""

    def chunks(self) -> Iterator[Rows]:
        """Yield the readings in their order. Raises DataError."""
        rows = table_of(self._member.read(), self._member.where)
        yield from self._of_table(next(rows), rows)


def table_of(content: bytes, where: str) -> Iterator[list[str]]:
    """Yield the names of the columns, then the values of each row as a text has them.

    Raises DataError, also where nothing reads Parquet here.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            f"{where}: Parquet needs pyarrow, which is not installed; run `pip install pyarrow`, or"
            " save it as text"
        ) from None
    try:
        file = parquet.ParquetFile(io.BytesIO(content))
        about = file.metadata
        groups = map(about.row_group, range(about.num_row_groups))
        unpacked = max((group.total_byte_size for group in groups), default=0)
        if about.num_columns > MOST_COLUMNS or unpacked > LARGEST_TEXT_BYTES:
            raise DataError(
                f"{where}: {about.num_columns} columns and {unpacked} bytes in a group of rows, at"
                f" most {MOST_COLUMNS} and {LARGEST_TEXT_BYTES} are read; write smaller groups"
            )
        yield list(file.schema_arrow.names)
        for batch in file.iter_batches(AT_ONCE):
            columns = [map(_word, _in_microseconds(column).to_pylist()) for column in batch.columns]
            yield from map(list, zip(*columns, strict=True))
    except (pyarrow.ArrowException, OSError, ValueError) as problem:
        raise DataError(
            f"{where}: not a whole Parquet file ({one_line(problem)[:80]}); save it again"
        ) from None


def _in_microseconds(column: Any) -> Any:
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
