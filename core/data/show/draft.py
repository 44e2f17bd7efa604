"""A draft of a format for recordings that no known format fits: what their figures prove.

`draft.yaml.j2` is its text. What a person must decide stands there as a key without a value, with
`# ?` and the question.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from core.data.described.column_looks import (
    DOUBLED,
    ColumnLook,
    columns_of,
    length_of,
    triples,
    unit_in,
)
from core.data.described.members import Member
from core.data.described.moments import is_of_day, patterns_of
from core.data.described.sheet import Sheet, sheets_of
from core.data.described.text_rows import LACKING

MOST_FILES = 48
"""Files that are looked at, evenly among all."""
MOST_NAMED = 4
MOST_WINDOW_HZ = 1000.0
ALIKE = 0.05
"""Rates that differ by less are one."""


@dataclass(frozen=True)
class _Kind:
    """Files of one form: some sheets of them, and the columns of the first."""

    sheets: Sequence[Sheet]
    columns: Sequence[ColumnLook]

    @property
    def first(self) -> Sheet:
        return self.sheets[0]

    @property
    def times(self) -> Sequence[ColumnLook]:
        return [column for column in self.columns if column.is_time]

    @property
    def vectors(self) -> Mapping[str, Sequence[ColumnLook]]:
        return triples([column for column in self.columns if not column.is_time])

    @property
    def vector_columns(self) -> set[str]:
        """The names of the columns of all vectors."""
        return {column.name for columns in self.vectors.values() for column in columns}

    @property
    def are_in_lines(self) -> bool:
        """Whether its lines say the sensor that they are of."""
        return any(
            "sensor" in self.first.format_sections.get(form, {}) for form in ("json", "text")
        )

    @property
    def is_in_turn(self) -> bool:
        """Whether lines have the values of one sensor and lack those of others."""
        lacks = [
            ~np.isfinite(column.numbers)
            for columns in self.vectors.values()
            for column in columns[:1]
            if column.numbers is not None
        ]
        return len(lacks) > 1 and float(np.any(lacks, axis=0).mean()) > LACKING


@dataclass(frozen=True)
class Draft:
    """The text of the file, and what it is made of.

    columns: of the files that it describes.
    """

    text: str
    columns: Sequence[ColumnLook]


def draft_of(named: str, members: Sequence[Member]) -> Draft | None:
    """Return a draft for the files of what a person named; None where none has numbers.

    Raises DataError for a damaged archive.
    """
    at_once = max(1, -(-len(members) // MOST_FILES))
    by_form: dict[tuple[str, ...], list[Sheet]] = {}
    for sheet in (sheet for member in members[::at_once] for sheet in sheets_of(member)):
        form = json.dumps(sheet.format_sections, sort_keys=True)
        by_form.setdefault((sheet.sensor, form, *sheet.names), []).append(sheet)
    kinds = [_Kind(sheets, columns_of(sheets[0])) for sheets in by_form.values()]
    kinds = [kind for kind in kinds if any(column.numbers is not None for column in kind.columns)]
    if not kinds:
        return None
    kinds.sort(key=lambda kind: (bool(kind.times), len(kind.sheets)), reverse=True)
    is_in_document = kinds[0].are_in_lines
    sensors = [kind for kind in kinds if kind.first.sensor and (kind.times or is_in_document)]
    described = kinds[:1]
    if len(sensors) > 1 or is_in_document:
        described = sensors
    has_sensors = is_in_document or len(described) > 1
    other_files = [kind.first.member.name for kind in kinds if kind not in described]
    columns = [column for kind in described for column in kind.columns]
    text = _template().render(
        named=named,
        paths=[member.name for member in members[:MOST_NAMED]],
        other_files=other_files[:MOST_NAMED],
        files=_files(described, other_files, by_path=has_sensors and not is_in_document),
        sections=_sections(described[0]),
        notes=[note for kind in described for note in kind.first.notes],
        columns=columns,
        time=_time(described),
        channels=[
            list(_channels(kind, has_sensors=has_sensors, is_in_turn=described[0].is_in_turn))
            for kind in described
        ],
        who=_who_and_what(described[0]),
    )
    return Draft(text, columns)


def _template() -> Any:
    drafts = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    drafts.filters |= {"quoted": _quoted, "comment": _comment}
    text = Path(__file__).with_name("draft.yaml.j2").read_text(encoding="utf-8")
    return drafts.from_string(text)


def _sections(kind: _Kind) -> Mapping[str, str]:
    """Return what says how the files are written, by key, as YAML has it on one line."""
    sections = dict(kind.first.format_sections)
    if kind.is_in_turn:
        sections["text"] = {**sections.get("text", {}), "in_turn": True}
    return {
        key: json.dumps(value, ensure_ascii=False)
        for key, value in sections.items()
        if value or key == "json"
    }


def _files(
    described: Sequence[_Kind], other_files: Sequence[str], *, by_path: bool
) -> Mapping[str, Any]:
    """Return the pattern of the files, where their names leave one alone, or what is asked."""
    paths = [
        (PurePosixPath(sheet.member.name), sheet) for kind in described for sheet in kind.sheets
    ]
    names = {path.name for path, _ in paths}
    endings = {path.suffix for path, _ in paths}
    if by_path:
        names = {path.name.replace(sheet.sensor, "{sensor}", 1) for path, sheet in paths}
    pattern = None
    if len(names) == 1:
        pattern = min(names)
    elif not by_path and len(endings) == 1:
        ending = min(endings)
        pattern = f"*{ending}"
        if any(name.endswith(ending) for name in other_files):
            pattern = None
    return {"pattern": pattern, "by_path": by_path, "first": min(names)}


def _time(described: Sequence[_Kind]) -> Mapping[str, Any]:
    """Return the columns that rise as times do, their forms, and the rates that are found."""
    first = described[0]
    times = first.times
    stated = {sheet.hertz for kind in described for sheet in kind.sheets}
    if not times:
        falling = [column.name for column in first.columns if column.falls]
        if len(stated) == 1:
            rate = stated.pop()
        else:
            rate = None
        return {"stated": rate, "falling": falling, "times": []}
    columns: Sequence[ColumnLook] = ()
    patterns = times[0].patterns
    if len(times) == 1:
        columns = _dated(first.columns, times[0])
        if len(columns) > 1:
            patterns = _joined(columns)
    is_of_several = any(column.is_source for column in first.columns) or first.is_in_turn
    rates = [
        column.hertz
        for sheet in first.sheets
        for column in columns_of(sheet)
        if column.name == times[0].name and column.hertz is not None and not is_of_several
    ]
    if rates:
        middle = sorted(rates)[len(rates) // 2]
    else:
        middle = None
    if middle is not None:
        is_one = max(rates) - min(rates) <= ALIKE * min(rates)
        if not is_one or middle > MOST_WINDOW_HZ:
            middle = None
    return {
        "times": times,
        "columns": [column.name for column in columns],
        "patterns": patterns,
        "is_doubled": times[0].doubles > DOUBLED and not is_of_several,
        "hertz": middle,
        "rates": rates,
    }


def _dated(columns: Sequence[ColumnLook], time: ColumnLook) -> Sequence[ColumnLook]:
    """Return the column of a time of day with that of its date before it, where there is one."""
    for column in columns:
        if is_of_day(min(time.patterns, default=None)) and not column.is_time and column.samples:
            both = column, time
            if not any(map(is_of_day, _joined(both) or ["%H"])):
                return both
    return (time,)


def _joined(both: Sequence[ColumnLook]) -> Sequence[str]:
    """Return the patterns of a date and a time."""
    return patterns_of(" ".join(column.samples[0] for column in both))


def _channels(kind: _Kind, *, has_sensors: bool, is_in_turn: bool) -> Iterator[Mapping[str, Any]]:
    """Yield the vectors of a kind of file, and its single columns, which are noted beside them."""
    if has_sensors:
        sensor = kind.first.sensor
    else:
        sensor = None
    if sensor is not None:
        prefix = f"{sensor.lower()}_"
    else:
        prefix = ""
    for name, columns in kind.vectors.items():
        channel_name = f"{prefix}{name}".removesuffix("_xyz")
        yield {
            "name": channel_name,
            "columns": columns,
            "sensor": channel_name if is_in_turn else sensor,
            "unit": unit_in(columns[0].name),
            "figures": f"mean length {length_of(columns):.4g}",
        }
    vector_columns = kind.vector_columns
    for column in kind.columns:
        if column.numbers is None or column.is_time or column.name in {"", *vector_columns}:
            continue
        yield {
            "is_noted": bool(vector_columns),
            "name": f"{prefix}{column.name}",
            "columns": [column],
            "sensor": sensor,
            "unit": unit_in(column.name),
            "figures": f"values such as {', '.join(column.samples)}",
        }


def _who_and_what(kind: _Kind) -> Mapping[str, Any]:
    """Return the columns that may say the device, the label and the person, and an ending."""
    paths = [PurePosixPath(sheet.member.name) for sheet in kind.sheets]
    example = None
    if len({path.parent for path in paths}) > 1 and len({path.name for path in paths}) > 1:
        example = paths[0].suffix
    labels = [
        column.line
        for column in kind.columns
        if column.may_say_what and not column.is_time and column.name not in kind.vector_columns
    ]
    sources = [column.line for column in kind.columns if column.is_source]
    return {"sources": sources, "labels": labels, "example": example}


def _quoted(word: str) -> str:
    """Return a word as YAML has it, on one line whatever it holds."""
    return "".join(
        letter if letter.isprintable() else f"\\U{ord(letter):08x}"
        for letter in json.dumps(word, ensure_ascii=False)
    )


def _comment(text: str) -> str:
    """Return words of a file as a part of one line that is no YAML."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:400]
