"""The beginning of one file, whatever it is, as lines of values and what was found of their form.

Nothing is known of the file before. At most `MOST_BYTES` of a text are read, and `MOST_LINES`.
"""

import codecs
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from core.data.archive import ZIP_DAMAGE
from core.data.described.container_rows import (
    CBOR,
    cells_of_array,
    cells_of_reading,
    loaded,
    of_cbor,
    table_of,
)
from core.data.described.description import TextForm
from core.data.described.members import Member
from core.data.described.text_bytes import DAMAGE, lines_of
from core.data.recordings import is_number, no_number
from core.ground.errors import DataError
from core.ground.files import parsed_json

MOST_BYTES = 2**20
MOST_DOCUMENT_BYTES = 32 * 2**20
"""Bytes of a document that is read as a whole, and of its content unpacked."""
MOST_LINES = 4000
MOST_COLUMNS = 1000
MOST_OBJECTS = 40_000
"""Objects of a document, in which sensors may follow each other."""
MOST_VALUES = 400_000
MOST_SOURCES = 16
_COMMENTS = ("#", "%", "//")
_CANDIDATES = ("tab", ";", "|", ",", "space")
_BINARY = (b"PK", b"MATLAB 5", b"PAR1")
_CONTROL = re.compile(rb"[\x01-\x08\x0e-\x1a]")
_MOST_CONTROL = 0.07
_BRACKETS = (b"[", b"{")
_SENSOR = re.compile(r"[a-z]*(?:acc|gyr|magn|(?<![a-z])mag|grav|rotat)[a-z]*", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+),\d+(?:[eE][+-]?\d+)?")
_WITH_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:\.\d{3})+,\d+")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class Sheet:
    """What the beginning of a file holds.

    format_sections: the sections of a format that say how it is written, by key. names: of the
    columns, as the file has them, or 1, 2, 3 where it has none. rows: the first values, each as
    text. sensor: what its name or its readings say of the sensor. hertz: the rate that the document
    states.
    """

    member: Member
    format_sections: Mapping[str, Any]
    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    has_names: bool
    notes: Sequence[str] = field(default=())
    sensor: str = ""
    hertz: float | None = None

    def column(self, at: int) -> list[str]:
        """Return the values of a column, with decimal points."""
        cells = [row[at].strip() for row in self.rows[: MOST_VALUES // len(self.names)]]
        if self.format_sections.get("text", {}).get("decimal") == ",":
            return [
                cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell for cell in cells
            ]
        return cells


def sheets_of(member: Member) -> Sequence[Sheet]:
    """Return the beginning of a file, of each sensor in it; none where no reader knows what it is.

    Raises DataError for a damaged archive.
    """
    with member.open() as raw:
        try:
            begin = raw.read(MOST_BYTES)
            is_whole = len(begin) < MOST_BYTES
            is_cbor = member.name.lower().endswith(CBOR)
            is_document = is_cbor or begin.startswith(_BINARY) or begin.lstrip()[:1] in _BRACKETS
            if is_document and not is_whole:
                begin += raw.read(MOST_DOCUMENT_BYTES)
                is_whole = len(begin) < MOST_DOCUMENT_BYTES
        except ZIP_DAMAGE:
            raise DataError(f"{member.where}: damaged; fetch it again") from None
    sheet: Sheet | None = None
    if is_cbor:
        if is_whole:
            sheet = _document(member, of_cbor(begin, member.where))
    elif begin.startswith((b"PK", b"MATLAB 5")):
        sheet = _array(member, begin)
    elif begin.startswith(b"PAR1"):
        sheet = _parquet(member, begin)
    elif is_document:
        sheet = _json(member, begin, is_whole) or _text(member, begin[:MOST_BYTES], False)
    else:
        sheet = _text(member, begin, is_whole)
    return [] if sheet is None else _by_sensor(sheet)


def _by_sensor(sheet: Sheet) -> Sequence[Sheet]:
    """Return a sheet for each sensor that a column of a text, or a key of objects, has words of."""
    if "json" in sheet.format_sections:
        section = "json"
    else:
        section = "text"
    for at, name in enumerate(sheet.names):
        different_cells = list(dict.fromkeys(row[at].strip() for row in sheet.rows))
        sensors = list(filter(sensor_in, different_cells))
        are_all = 2 <= len(sensors) == len(different_cells) <= MOST_SOURCES
        if are_all or (section == "json" and sensors[:1] == different_cells[:1]):
            format_sections = {
                **sheet.format_sections,
                section: {**sheet.format_sections.get(section, {}), "sensor": name},
            }
            return [
                _of_sensor(replace(sheet, format_sections=format_sections, sensor=word), at)
                for word in different_cells
            ]
    return [sheet]


def _of_sensor(sheet: Sheet, at: int) -> Sheet:
    """Return the rows whose word in a column is the sensor, with all other columns of theirs."""
    rows = [row for row in sheet.rows if row[at].strip() == sheet.sensor]
    places = [place for place, cells in enumerate(zip(*rows, strict=True)) if any(cells)]
    places.remove(at)
    names = [sheet.names[place] for place in places]
    return replace(sheet, names=names, rows=[[row[place] for place in places] for row in rows])


def sensor_in(name: str) -> str:
    """Return the part of a name that is a sensor of movement's; empty where it has none."""
    match = _SENSOR.search(name)
    if match:
        return match[0]
    return ""


def _array(member: Member, content: bytes) -> Sheet | None:
    try:
        arrays = {
            name: np.asarray(array)
            for name, array in loaded(content, MOST_DOCUMENT_BYTES).items()
            if not name.startswith("__")
        }
    except Exception:  # SciPy promises no types of errors over damaged files
        return None
    tables = {
        name: array
        for name, array in arrays.items()
        if array.ndim == 2 and array.dtype.kind in "iuf"
    }
    if not tables:
        return None
    name = max(tables, key=lambda array_name: tables[array_name].size)
    rows = list(cells_of_array(tables[name][:MOST_LINES, :MOST_COLUMNS]))
    notes = [f"other arrays: {', '.join(other for other in tables if other != name)}"]
    return _sheet(member, {"array": name}, [], rows, notes if len(tables) > 1 else [])


def _parquet(member: Member, content: bytes) -> Sheet | None:
    try:
        names, *rows = islice(table_of(content, member.where), MOST_LINES + 1)
    except DataError:
        return None
    return _sheet(member, {}, names, rows, [])


def _json(member: Member, content: bytes, is_whole: bool) -> Sheet | None:
    lines = content.splitlines()[: MOST_LINES + 1]
    if not is_whole:
        lines = lines[:-1]
    try:
        rows = [parsed_json(line) for line in lines if line.strip()][:MOST_LINES]
        is_lines = len(rows) > 1 and all(isinstance(row, dict) for row in rows)
    except ValueError:
        is_lines = False
    if is_lines:
        return _objects(member, {"lines": True}, rows)
    try:
        return _document(member, parsed_json(content))
    except ValueError:
        return None


def _document(member: Member, document: Any) -> Sheet | None:
    """Return the longest list of readings, which are objects, or lists with names beside them."""
    leaves = dict(_leaves(document, "", 0))
    lists = {keys: leaf for keys, leaf in leaves.items() if isinstance(leaf, list) and leaf}
    for keys in sorted(lists, key=lambda list_keys: len(lists[list_keys]), reverse=True):
        rows = lists[keys][:MOST_OBJECTS]
        if isinstance(rows[0], dict) and len(rows) > len(rows[0]):
            return _objects(member, {"rows": keys} if keys else {}, rows)
        sheet = _table(member, keys, rows, leaves) if isinstance(rows[0], list) else None
        if sheet is not None:
            return sheet
    return None


def _leaves(document: Any, keys: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the values of a document that are no objects, with the keys down to them."""
    if not isinstance(document, dict):
        yield keys, document
    elif depth <= 3:
        for key, value in document.items():
            yield from _leaves(value, f"{keys}.{key}".lstrip("."), depth + 1)


def _table(
    member: Member, keys: str, rows: Sequence[Any], leaves: Mapping[str, Any]
) -> Sheet | None:
    """Return the sheet of readings that are lists; None where no list has a name for each value."""
    json_section: dict[str, Any] = {"rows": keys}
    names: list[str] = []
    notes: list[str] = []
    hertz = None
    for where, value in leaves.items():
        is_pause = where.rpartition(".")[2] == "interval_ms" and isinstance(value, int | float)
        if is_pause and value > 0:
            json_section["interval_ms"] = where
            hertz = 1000 / value
        if not isinstance(value, list) or len(value) != len(rows[0]):
            continue
        called = [column.get("name") if isinstance(column, dict) else column for column in value]
        if all(isinstance(column, str) for column in called):
            json_section["names"] = where
            names = list(map(str, called))
            stated = [
                f"{column['name']} {column['units']}"
                for column in value
                if isinstance(column, dict) and column.get("units")
            ]
            notes = [f"units that the file says: {', '.join(stated)}"] if stated else []
    if not names:
        return None
    cells = [
        cells_of_reading(row, names)
        for row in rows[:MOST_LINES]
        if isinstance(row, list) and len(row) == len(names)
    ]
    sheet = _sheet(member, {"json": json_section}, names, cells, notes)
    return None if sheet is None else replace(sheet, hertz=hertz)


def _objects(member: Member, json_section: Mapping[str, Any], rows: Sequence[Any]) -> Sheet | None:
    """Return the sheet of readings that are objects, with the keys of all."""
    objects = [row for row in rows if isinstance(row, dict)]
    names = list(dict.fromkeys(key for row in objects for key in row))[:MOST_COLUMNS]
    cells = [cells_of_reading(row, names) for row in objects]
    return _sheet(member, {"json": json_section}, names, cells, [])


def _text(member: Member, content: bytes, is_whole: bool) -> Sheet | None:
    encoding = _encoding(content)
    if encoding is None:
        return None
    text = content.decode("utf-8-sig" if encoding == "utf-8" else encoding, "ignore")
    lines = [line.rstrip("\n") for line in io.StringIO(text, newline=None)]
    if not is_whole:
        lines = lines[:-1]
    text_section: dict[str, Any] = {} if encoding == "utf-8" else {"encoding": encoding}
    numbered = dict(enumerate(lines[:MOST_LINES]))
    if numbered.get(0, "").lower().startswith("sep="):
        del numbered[0]
    begin = next(iter(numbered.values()), "")
    comment = next((mark for mark in _COMMENTS if begin.startswith(mark)), "")
    if comment:
        text_section["comment"] = comment
    numbered = {
        number: line
        for number, line in numbered.items()
        if line.strip() and not (comment and line.startswith(comment))
    }
    lines = list(numbered.values())
    if sum(line.rstrip().endswith(";") and line.count(";") == 1 for line in lines) > len(lines) / 2:
        text_section["end"] = ";"
        lines = [line.rstrip().rstrip(";") for line in lines]
    best = max(_CANDIDATES, key=lambda separator: _numbers(_cells(lines[-200:], separator)))
    rows = _cells(lines, best)
    if not _numbers(rows[-200:]):
        return None
    if best != ",":
        text_section["separator"] = best
    flat = [cell for row in rows for cell in row]
    commas = sum(bool(_DECIMAL_COMMA.fullmatch(cell)) for cell in flat)
    if commas and not any(map(_DECIMAL_POINT.fullmatch, flat)):
        text_section["decimal"] = ","
    return _with_names(member, text_section, rows, list(numbered))


def _with_names(
    member: Member, text_section: dict[str, Any], rows: list[list[str]], numbers: Sequence[int]
) -> Sheet | None:
    """Return the sheet of lines, the first of which may be a title or have the names.

    `numbers` count the lines of the file before each row, blank ones and comments among them.
    """
    width = Counter(len(row) for row in rows[-200:]).most_common(1)[0][0]
    if width > MOST_COLUMNS:
        return None
    first = next(at for at, row in enumerate(rows) if len(row) == width)
    names: list[str] = []
    if not any(map(_is_number, rows[first])):
        names = [name.strip() for name in rows[first]]
    if first and (names or not text_section.get("comment")):
        text_section["skip_lines"] = numbers[first]
    whole = [row for row in rows[first:] if len(row) == width][bool(names) :]
    notes = [
        f"{cell:.40} is no number: {no_number(cell)}"
        for cell in filter(_WITH_THOUSANDS.fullmatch, chain(*whole[-1:]))
    ]
    other_widths = len(rows) - first - bool(names) - len(whole)
    if other_widths:
        notes.append(f"{other_widths} of the first {len(rows)} lines have another number of values")
    while names and not names[-1]:
        names.pop()
    if len(set(names)) < len(names):
        notes.append(f"names that come twice: {', '.join(names)}"[:200])
        text_section["skip_lines"] = numbers[first] + 1
        names = []
    if not names:
        text_section["columns"] = width
    return _sheet(member, {"text": text_section}, names, whole, notes)


def _sheet(
    member: Member,
    format_sections: Mapping[str, Any],
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
) -> Sheet | None:
    if not rows:
        return None
    sensor = sensor_in(PurePosixPath(member.name).stem)
    numbered = [str(at + 1) for at in range(len(rows[0]))]
    return Sheet(member, format_sections, names or numbered, rows, bool(names), notes, sensor)


def _encoding(content: bytes) -> str | None:
    """Return the encoding of a text; None for what is no text."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in content or len(_CONTROL.findall(content)) > _MOST_CONTROL * len(content):
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _cells(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Return the values of each line, which may have none."""
    form = TextForm.model_validate({"separator": separator})
    try:
        return [row for line in lines for row in lines_of([line], form)]
    except DAMAGE:
        return []


def _numbers(rows: Sequence[Sequence[str]]) -> int:
    """Return how many values of these lines are numbers; 0 of lines of one value."""
    return sum(
        sum(map(_is_number, row)) - sum("," in cell for cell in row) // 2
        for row in rows
        if len(row) > 1
    )


def _is_number(cell: str) -> bool:
    cell = cell.strip()
    return is_number(cell) or bool(_DECIMAL_COMMA.fullmatch(cell))
