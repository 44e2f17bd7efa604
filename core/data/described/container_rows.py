"""Readings in containers instead of lines: JSON, CBOR, Parquet, sheets of Excel, arrays.

A document is a list of objects, or of lists of numbers with names beside them; it is CBOR in a file
whose name ends with `.cbor`. Parquet has names of columns. A sheet of Excel (.xls) is a sensor, and
its first row has the names. An array of MATLAB or NumPy has a row a reading, and no names.
"""

import io
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from math import prod
from typing import IO, Any

import numpy as np

from core.data.archive import LARGEST_TEXT_BYTES, one_line, open_zip
from core.data.arrays import AnyArray
from core.data.described import workbook
from core.data.described.description import JsonForm
from core.data.described.members import LARGEST_DOCUMENT_BYTES
from core.data.described.text_rows import AT_ONCE, Rows, TextRows
from core.ground.errors import DataError, reason_of
from core.ground.files import parsed_json

CBOR = ".cbor"
DEEPEST = 8
"""Levels of lists and maps."""
TAGS = (*range(64), 100, 256, 258, 260, 261, 43000)
"""Tags that make patterns, shared lists and such of values: no document needs one."""


class JsonRows(TextRows):
    """The readings of one document, or those of one sensor in it."""

    def chunks(self) -> Iterator[Rows]:
        """Yield the readings in their order. Raises DataError."""
        form = self.form.json_
        assert form is not None
        document = self._document()
        rows = self._at(document, form.rows)
        if form.sensor is not None:
            rows = [
                row for row in rows if isinstance(row, dict) and row.get(form.sensor) == self.sensor
            ]
        self.hertz = self._rate(document, form)
        if form.names is not None:
            names = [
                str(column.get("name")) if isinstance(column, dict) else str(column)
                for column in self._at(document, form.names)
            ]
        else:
            names = list(rows[0]) if rows and isinstance(rows[0], dict) else []
        yield from self._of_table(names, (cells_of_reading(row, names) for row in rows))

    def _document(self) -> Any:
        content = self.member.read(LARGEST_DOCUMENT_BYTES)
        assert self.form.json_ is not None
        if self.member.name.lower().endswith(CBOR):
            return of_cbor(content, self.member.where)
        if self.form.json_.lines:
            return [_line(line) for line in content.splitlines() if line.strip()]
        try:
            return parsed_json(content)
        except ValueError as problem:
            raise DataError(
                f"{self.member.where}: expected JSON, got {reason_of(problem):.80}; export it again"
            ) from None

    def _at(self, document: Any, keys: str) -> Sequence[Any]:
        values = _value(document, keys)
        if not isinstance(values, list):
            raise DataError(
                f"{self.member.where}: expected a list at {keys or 'the top'!r:.60}, got"
                f" {type(values).__name__}; describe the document as it is"
            )
        return values

    def _rate(self, document: Any, form: JsonForm) -> float | None:
        """Return the readings a second that the document says."""
        if form.interval_ms is None:
            return self.form.time.hertz
        interval_ms = _value(document, form.interval_ms)
        if not isinstance(interval_ms, int | float) or not 0 < interval_ms <= 1000:
            raise DataError(
                f"{self.member.where}: {form.interval_ms}: expected milliseconds between two"
                f" readings, got {interval_ms!r:.40}; correct it"
            )
        return 1000.0 / interval_ms


def of_cbor(content: bytes, where: str) -> Any:
    """Return the document. Raises DataError, also where nothing reads CBOR here."""
    try:
        import cbor2
    except ImportError:
        raise DataError(
            f"{where}: CBOR needs cbor2, which is not installed; run `pip install cbor2`, or export"
            " JSON"
        ) from None

    def refuse(*_: object) -> None:
        raise cbor2.CBORDecodeError("a tag, which no reading has")

    decoders = dict.fromkeys(TAGS, refuse)
    try:
        return cbor2.loads(
            content,
            tag_hook=refuse,
            semantic_decoders=decoders,
            max_depth=DEEPEST,
            strict_hashable_types=True,
        )
    except (cbor2.CBORError, ValueError, MemoryError) as problem:
        raise DataError(
            f"{where}: expected CBOR, got {reason_of(problem):.80}; export it again"
        ) from None


def _line(content: bytes) -> Any:
    """Return the reading of one line; one that is damaged has too few values."""
    try:
        return parsed_json(content)
    except ValueError:
        return [content[:40].decode("utf-8", "replace")]


def _value(document: Any, keys: str) -> Any:
    for key in filter(None, keys.split(".")):
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


def cells_of_reading(row: Any, names: Sequence[str]) -> list[str]:
    """Return the values of one reading as a line of text has them."""
    if isinstance(row, dict):
        return [_word_of_value(row.get(name)) for name in names]
    return [_word_of_value(value) for value in row] if isinstance(row, list) else []


def _word_of_value(value: Any) -> str:
    """Return a value as a line of text has it; of what is none, its kind."""
    if value is None:
        return ""
    if isinstance(value, str | float) or (isinstance(value, int) and abs(value) < 2**64):
        return str(value)
    return f"a {type(value).__name__}"


class ArrayRows(TextRows):
    """The readings of one array."""

    def chunks(self) -> Iterator[Rows]:
        """Yield the readings in their order. Raises DataError."""
        name = str(self.form.array)
        content = self.member.read()
        try:
            array = np.asarray(loaded(content, LARGEST_TEXT_BYTES, name)[name])
        except Exception as problem:  # SciPy promises no types of errors over damaged files
            raise DataError(
                f"{self.member.where}: expected an array {name!r:.40} of a MATLAB 5 file or an"
                f" .npz, got {reason_of(problem):.80}; save it so"
            ) from None
        if array.ndim != 2 or array.dtype.kind not in "iuf":
            raise DataError(
                f"{self.member.where}: {name:.40}: expected numbers of shape (readings, columns),"
                f" got {array.dtype} {array.shape}; name another array"
            )
        yield from self._of_table(
            tuple(map(str, range(1, array.shape[1] + 1))), cells_of_array(array)
        )


def cells_of_array(array: AnyArray) -> Iterator[list[str]]:
    """Yield the values of each row of a table, (rows, columns), as a text has them."""
    return (list(map(repr, row.tolist())) for row in array)


def loaded(content: bytes, most_bytes: int, name: str | None = None) -> Mapping[str, Any]:
    """Return the arrays of a file by name; none says that it is larger than `most_bytes`.

    Raises what NumPy and SciPy raise.
    """
    stream = io.BytesIO(content)
    if content.startswith(b"PK"):
        open_zip(stream, "arrays", most_bytes).close()
        archive: Mapping[str, Any] = np.load(stream, allow_pickle=False)
        return archive
    from scipy.io import loadmat, whosmat

    values = max((prod(shape) for _, shape, _ in whosmat(stream)), default=0)
    if values > most_bytes // 8:
        raise ValueError(f"an array of {values} values")
    arrays: Mapping[str, Any] = loadmat(stream, variable_names=None if name is None else [name])
    return arrays


PARQUET = ".parquet"
MOST_COLUMNS = 1000


class ParquetRows(TextRows):
    """The readings of one file."""

    def chunks(self) -> Iterator[Rows]:
        """Yield the readings in their order. Raises DataError."""
        rows = table_of(self.member.read(), self.member.where)
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
            columns = [
                map(_word_of_cell, _in_microseconds(column).to_pylist()) for column in batch.columns
            ]
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


def _word_of_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


BEGIN_OF_XLS = b"\xd0\xcf\x11\xe0"
"""Begin of a compound document: an .xlsx is another, whose sheets may have 17 billion cells."""
DEADLINE_SECONDS = 300.0


class SheetRows(TextRows):
    """The readings of one sheet, which another process writes as text."""

    @contextmanager
    def _content(self) -> Iterator[IO[bytes]]:
        where = self.member.where
        if find_spec("python_calamine") is None:
            raise DataError(
                f"{where}: Excel's files need python-calamine, which is not installed; run `pip"
                " install python-calamine`, or export CSV"
            )
        content = self.member.read(LARGEST_DOCUMENT_BYTES)
        if not content.startswith(BEGIN_OF_XLS):
            raise DataError(f"{where}: expected Excel's format .xls; export that, or CSV")
        command = [sys.executable, "-I", workbook.__file__, str(self.sensor)]
        with tempfile.TemporaryFile() as rows:
            try:
                done = subprocess.run(
                    command,
                    input=content,
                    stdout=rows,
                    stderr=subprocess.DEVNULL,
                    timeout=DEADLINE_SECONDS,
                )
            except subprocess.TimeoutExpired:
                raise DataError(
                    f"{where}: not read in {DEADLINE_SECONDS:g} s; export CSV"
                ) from None
            if done.returncode == workbook.NO_SHEET:
                rows.seek(0)
                sheet_names = " ".join(rows.read(160).decode("utf-8", "replace").split())
                raise DataError(
                    f"{where}: no sheet {self.sensor!r:.60}, got {sheet_names}; record with that"
                    " sensor, or describe other channels"
                )
            if done.returncode:
                raise DataError(f"{where}: not a whole file of Excel; export it again")
            rows.seek(0)
            yield rows
