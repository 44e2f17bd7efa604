"""Readings in a document: a list of objects, or of lists of numbers with names beside them.

The document is JSON; it is CBOR in a file whose name ends with `.cbor`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.data.described.description import JsonForm
from core.data.described.members import LARGEST_DOCUMENT_BYTES
from core.data.described.text_rows import Rows, TextRows
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
        form = self._form.json_
        assert form is not None
        document = self._document()
        rows = self._at(document, form.rows)
        if form.sensor is not None:
            rows = [
                row
                for row in rows
                if isinstance(row, dict) and row.get(form.sensor) == self._sensor
            ]
        self._hertz = self._rate(document, form)
        if form.names is not None:
            names = [
                str(column.get("name")) if isinstance(column, dict) else str(column)
                for column in self._at(document, form.names)
            ]
        else:
            names = list(rows[0]) if rows and isinstance(rows[0], dict) else []
        yield from self._of_table(names, (cells_of(row, names) for row in rows))

    def _document(self) -> Any:
        content = self._member.read(LARGEST_DOCUMENT_BYTES)
        assert self._form.json_ is not None
        if self._member.name.lower().endswith(CBOR):
            return of_cbor(content, self._member.where)
        if self._form.json_.lines:
            return [_line(line) for line in content.splitlines() if line.strip()]
        try:
            return parsed_json(content)
        except ValueError as problem:
            raise DataError(
                f"{self._member.where}: expected JSON, got {reason_of(problem):.80}; export it"
                " again"
            ) from None

    def _at(self, document: Any, keys: str) -> Sequence[Any]:
        values = _value(document, keys)
        if not isinstance(values, list):
            raise DataError(
                f"{self._member.where}: expected a list at {keys or 'the top'!r:.60}, got"
                f" {type(values).__name__}; describe the document as it is"
            )
        return values

    def _rate(self, document: Any, form: JsonForm) -> float | None:
        """Return the readings a second that the document says."""
        if form.interval_ms is None:
            return self._form.time.hertz
        interval_ms = _value(document, form.interval_ms)
        if not isinstance(interval_ms, int | float) or not 0 < interval_ms <= 1000:
            raise DataError(
                f"{self._member.where}: {form.interval_ms}: expected milliseconds between two"
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


def cells_of(row: Any, names: Sequence[str]) -> list[str]:
    """Return the values of one reading as a line of text has them."""
    if isinstance(row, dict):
        return [_word(row.get(name)) for name in names]
    return [_word(value) for value in row] if isinstance(row, list) else []


def _word(value: Any) -> str:
    """Return a value as a line of text has it; of what is none, its kind."""
    if value is None:
        return ""
    if isinstance(value, str | float) or (isinstance(value, int) and abs(value) < 2**64):
        return str(value)
    return f"a {type(value).__name__}"
