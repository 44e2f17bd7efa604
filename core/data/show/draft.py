"""A draft of a format for recordings that no known format fits: what their figures prove.

What a person must decide stands there as a key without a value, with `# ?` and the question.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import numpy as np

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
UNITS_ASKED = "g, m/s2, mg, rad/s, deg/s, uT, mT, gauss or none"
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
    lines = list(_lines(named, members, described, kinds))
    columns = [column for kind in described for column in kind.columns]
    return Draft("\n".join(lines) + "\n", columns)


def _lines(
    named: str,
    members: Sequence[Member],
    described: Sequence[_Kind],
    kinds: Sequence[_Kind],
) -> Iterator[str]:
    yield f"# A draft for {_comment(named)}: write a value before each `# ?`; docs/recordings.md"
    yield "# has the keys. Samples and figures are of the beginnings of the files."
    paths = [member.name for member in members]
    yield f"# Paths are such as {_comment(', '.join(paths[:MOST_NAMED]))}."
    first = described[0].first
    other_files = [kind.first.member.name for kind in kinds if kind not in described]
    if other_files:
        yield f"# Files of another form: {_comment(', '.join(other_files[:MOST_NAMED]))}."
    is_in_document = described[0].are_in_lines
    is_in_turn = described[0].is_in_turn
    has_sensors = is_in_document or len(described) > 1
    yield from _files(described, other_files, by_path=has_sensors and not is_in_document)
    format_sections = dict(first.format_sections)
    if is_in_turn:
        format_sections["text"] = {**format_sections.get("text", {}), "in_turn": True}
    for key, value in format_sections.items():
        if value or key == "json":
            yield f"{key}: {json.dumps(value, ensure_ascii=False)}"
    yield from (f"# {_comment(note)}" for kind in described for note in kind.first.notes)
    for column in (column for kind in described for column in kind.columns if column.stray_words):
        stray_words = ", ".join(map(_quoted, column.stray_words))
        yield f"# {_comment(column.name)} has words among its numbers: {stray_words}; see `missing`"
    yield from _time(described)
    channels = [
        line
        for kind in described
        for line in _channels(kind, kind.first.sensor if has_sensors else None, is_in_turn)
    ]
    if channels:
        yield "channels:"
        yield from channels
    else:
        yield "channels:  # ? no column but the time has numbers; write the readings as such"
    yield from _who_and_what(described[0])


def _files(
    described: Sequence[_Kind], other_files: Sequence[str], *, by_path: bool
) -> Iterator[str]:
    """Yield the pattern of the files, where their names leave one alone."""
    paths = [
        (PurePosixPath(sheet.member.name), sheet) for kind in described for sheet in kind.sheets
    ]
    names = {path.name for path, _ in paths}
    endings = {path.suffix for path, _ in paths}
    if by_path:
        names = {path.name.replace(sheet.sensor, "{sensor}", 1) for path, sheet in paths}
    if len(names) == 1:
        yield f"files: {_quoted(names.pop())}"
    elif by_path:
        yield f"files:  # ? a pattern of the paths, with {{sensor}}; {_comment(min(names))}"
    elif len(endings) > 1 or any(name.endswith(min(endings)) for name in other_files):
        yield "files:  # ? a pattern of the paths of these readings alone"
    else:
        yield f"files: {_quoted('*' + endings.pop())}"


def _time(described: Sequence[_Kind]) -> Iterator[str]:
    times = described[0].times
    yield "time:"
    stated = {sheet.hertz for kind in described for sheet in kind.sheets}
    if not times and len(stated) == 1 and None not in stated:
        yield f"  hertz: {stated.pop():.6g}  # the rate that the files say"
        return
    if not times:
        falling = [column.name for column in described[0].columns if column.falls]
        turn = ""
        if falling:
            turn = f"; {_comment(falling[0])} falls: write the oldest reading first"
        yield f"  hertz:  # ? readings a second; no column rises as times do{turn}"
        return
    if len(times) == 1:
        both = _dated(described[0].columns, times[0])
        names = ", ".join(_quoted(column.name) for column in both)
        if len(both) > 1:
            names = f"[{names}]"
            times = [replace(times[0], patterns=_joined(both))]
        yield f"  column: {names}  # {_comment(times[0].line)}"
    else:
        several = "; ".join(f"{column.line} in {' or '.join(column.units)}" for column in times)
        yield f"  column:  # ? one of {_comment(several)}"
    patterns = times[0].patterns
    if len(times) == 1 and patterns:
        several = " or ".join(map(_quoted, patterns))
        yield f"  pattern: {' # ? ' if len(patterns) > 1 else ''}{several}"
    elif len(times) == 1 and len(times[0].units) == 1:
        yield f"  unit: {times[0].units[0]}"
    else:
        yield "  unit:  # ? of that column: s, ms, us, ns or iso"
    has_sources = any(column.is_source for column in described[0].columns)
    are_several = has_sources or described[0].is_in_turn
    if times[0].doubles > DOUBLED and not are_several:
        yield (
            f"  spread:  # ? {times[0].doubles:.0%} of readings have the time of the one before:"
            " true if they follow it; else write another time"
        )
    rates = [
        column.hertz
        for kind in described[:1]
        for sheet in kind.sheets
        for column in columns_of(sheet)
        if column.name == times[0].name and column.hertz is not None and not are_several
    ]
    middle = 0.0
    if rates:
        middle = sorted(rates)[len(rates) // 2]
    if rates and max(rates) - min(rates) <= ALIKE * min(rates) and middle <= MOST_WINDOW_HZ:
        yield f"  hertz: {round(middle)}  # found: {middle:.4g} readings a second"
    else:
        rate_hint = ""
        if rates:
            rate_hint = f"; found: {min(rates):.4g} to {max(rates):.4g}"
        yield f"  hertz:  # ? the rate of the windows{rate_hint}"


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


def _channels(kind: _Kind, sensor: str | None, is_in_turn: bool) -> Iterator[str]:
    of_sensor = ""
    prefix = ""
    if sensor is not None:
        of_sensor = f"\n    sensor: {_quoted(sensor)}"
        prefix = f"{sensor.lower()}_"
    vectors = kind.vectors
    for name, columns in vectors.items():
        listed = ", ".join(_quoted(column.name) for column in columns)
        channel_name = f"{prefix}{name}".removesuffix("_xyz")
        if is_in_turn:
            of_sensor = f"\n    sensor: {_quoted(channel_name)}"
        yield f"  - name: {_quoted(channel_name)}\n    columns: [{listed}]{of_sensor}"
        yield from _unit(columns[0].name, f"mean length {length_of(columns):.4g}")
    vector_columns = {column.name for columns in vectors.values() for column in columns}
    single_columns = [
        column
        for column in kind.columns
        if column.numbers is not None
        and not column.is_time
        and column.name not in {"", *vector_columns}
    ]
    for column in single_columns:
        entry = f"{{name: {_quoted(column.name)}, columns: {_quoted(column.name)}, unit: none}}"
        if vectors:
            yield f"  # - {entry}  # {_comment(column.line)}"
            continue
        channel_name = _quoted(f"{prefix}{column.name}")
        yield f"  - name: {channel_name}\n    columns: {_quoted(column.name)}{of_sensor}"
        yield from _unit(column.name, f"values such as {', '.join(column.samples)}")
    if single_columns and not vectors:
        yield '  # Three axes of one sensor are one channel: columns: ["2", "3", "4"]'


def _unit(name: str, figures: str) -> Iterator[str]:
    stated = unit_in(name)
    if stated is not None:
        yield f"    unit: {stated}  # {figures}"
    else:
        yield f"    unit:  # ? {UNITS_ASKED}; {_comment(figures)}"


def _who_and_what(kind: _Kind) -> Iterator[str]:
    vector_columns = {column.name for columns in kind.vectors.values() for column in columns}
    sources = ", ".join(column.line for column in kind.columns if column.is_source)
    if sources:
        yield "session:"
        yield (
            f"  column:  # ? the device that a reading is of: {_comment(sources)}; of sensors give"
            " text.sensor it, and null here"
        )
    label_columns = [
        column.line
        for column in kind.columns
        if column.may_say_what and not column.is_time and column.name not in vector_columns
    ]
    if label_columns:
        hint = f"{', '.join(label_columns)}; or null"
    else:
        hint = "no column says it; null"
    paths = [PurePosixPath(sheet.member.name) for sheet in kind.sheets]
    example = ""
    if len({path.parent for path in paths}) > 1 and len({path.name for path in paths}) > 1:
        example = f', such as "{{person}}/{{label}}{_comment(paths[0].suffix)}"'
    for key, what, also in (
        ("label", "what was done", ""),
        ("person", "who was recorded", ", or `name` for one person"),
    ):
        yield f"{key}:"
        yield f"  column:  # ? {what}: {_comment(hint)}, with {{{key}}} in files{example}{also}"


def _quoted(word: str) -> str:
    """Return a word as YAML has it, on one line whatever it holds."""
    return "".join(
        letter if letter.isprintable() else f"\\U{ord(letter):08x}"
        for letter in json.dumps(word, ensure_ascii=False)
    )


def _comment(text: str) -> str:
    """Return words of a file as a part of one line that is no YAML."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:400]
