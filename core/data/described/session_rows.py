"""The readings of each recording, with its sensors side by side where they have files of their own.

The first sensor's times count. The values of the others are linear between their two readings
around such a time, where these are no pause apart. The first readings say which known formats fit.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from core.data.arrays import Flags, Numbers, Places
from core.data.described.column_looks import look_at, says_source, spread
from core.data.described.container_rows import PARQUET, ArrayRows, JsonRows, ParquetRows, SheetRows
from core.data.described.description import RecordingFormat
from core.data.described.known_formats import described, names
from core.data.described.members import LARGEST_DOCUMENT_BYTES, Member, PathPattern, Sheaf, sheaves
from core.data.described.series import first_vectors, signals_of
from core.data.described.sheet import sheets_of
from core.data.described.text_bytes import Damage, named_rows
from core.data.described.text_rows import Rows, TextRows, whole
from core.data.filters import OF_NINE_CHANNELS, InputMapping, input_mapping, takes_nine
from core.data.intake import rate_of
from core.data.signals import Signals
from core.ground.errors import DataError, UsageError
from core.ground.files import parsed_json
from core.ground.plausible import times_problem

ABOUT_LETTERS = 2**16
"""A file about the device is read so far, which is less than the longest value of `csv`."""
MOST_NAMED = 4


def rows_of(
    sheaf: Sheaf, form: RecordingFormat, damage: Damage, *, unlabelled: bool = False
) -> Iterator[Rows]:
    """Yield the readings of one recording, values (n, channels) in the format's units.

    With `unlabelled` no column is asked for but those of time and channels. Raises DataError.
    """
    signs: Numbers | None = None
    for rows in _rows_of(sheaf, form, damage, unlabelled):
        if signs is None:
            signs = _signs(sheaf, form)
        yield replace(rows, values=rows.values * signs)


def _rows_of(
    sheaf: Sheaf, form: RecordingFormat, damage: Damage, unlabelled: bool
) -> Iterator[Rows]:
    first, *other_sensors = form.sensors
    if not other_sensors:
        yield from rows_of_sensor(sheaf, form, first, damage, unlabelled)
        return
    sensor_rows = [
        whole(rows_of_sensor(sheaf, form, sensor, damage, unlabelled)) for sensor in form.sensors
    ]
    if not _are_in_lines(form):
        yield _side_by_side(sheaf, form, sensor_rows, damage)
        return
    for sensor, part in zip(form.sensors, sensor_rows, strict=True):
        if not len(part.times):
            raise DataError(
                f"{sheaf.files[sensor].where}: no reading of the sensor {sensor!r:.60}; correct"
                " `sensor` of its channels, or record with it"
            )
    groups = [_groups(part, form) for part in sensor_rows]
    for owner in groups[0]:
        owner_rows = [
            _rows_at(part, group.get(owner, np.zeros(0, np.intp)))
            for part, group in zip(sensor_rows, groups, strict=True)
        ]
        yield _side_by_side(sheaf, form, owner_rows, damage)


def _are_in_lines(form: RecordingFormat) -> bool:
    """Whether lines of one file are of several sensors."""
    return form.text.sensor is not None or form.text.in_turn


def _side_by_side(
    sheaf: Sheaf, form: RecordingFormat, sensor_rows: Sequence[Rows], damage: Damage
) -> Rows:
    """Return readings with the values of all sensors. Raises DataError."""
    base = sensor_rows[0]
    if form.time.column is None and form.json_ is None and not damage.bad:
        _refuse_other_length(sheaf, form, sensor_rows)
    gap = form.longest_gap(form.time.hertz or 20.0)
    near = np.ones(len(base.times), np.bool_)
    columns: dict[str, Numbers] = {}
    for sensor, part in zip(form.sensors, sensor_rows, strict=True):
        values, are_near = _at(base.times, part, gap)
        near &= are_near
        channels = [channel for channel in form.channels if channel.sensor == sensor]
        ends = np.cumsum([len(channel.names) for channel in channels])
        split = np.split(values, ends[:-1], axis=1)
        columns.update(zip((channel.name for channel in channels), split, strict=True))
    _refuse_apart(sheaf, form, sensor_rows, near)
    damage.apart += int((~near).sum())
    ordered = [columns[channel.name] for channel in form.channels]
    beside_base = Rows(base.times, np.concatenate(ordered, axis=1), base.text_columns)
    return _rows_at(beside_base, np.flatnonzero(near))


def _signs(sheaf: Sheaf, form: RecordingFormat) -> Numbers:
    """Return -1 for each column that the device of a recording gives with the opposite sign."""
    names = [channel.name for channel in form.channels for _ in channel.names]
    about = form.about
    if about is None or about.sensor not in sheaf.files:
        return np.ones(len(names))
    content = sheaf.files[about.sensor].read(LARGEST_DOCUMENT_BYTES).decode("utf-8-sig", "replace")
    rows = named_rows(content[:ABOUT_LETTERS])
    if form.json_ is not None:
        objects = (row for row in parsed_json(content) if isinstance(row, dict))
        rows = (row for row in objects if about.sensor in row.values())
    attributes = {f"{key}={word}".lower() for row in rows for key, word in row.items()}
    is_turned = attributes.issuperset(about.turned) and attributes.isdisjoint(about.unless)
    return np.where(is_turned & np.isin(names, about.channels), -1.0, 1.0)


def rows_of_sensor(
    sheaf: Sheaf, form: RecordingFormat, sensor: str | None, damage: Damage, unlabelled: bool
) -> Iterator[Rows]:
    """Yield the readings of one sensor's file, as `rows_of` does. Raises DataError."""
    columns = [
        name for channel in form.channels if channel.sensor == sensor for name in channel.columns
    ]
    columns_of_words = [form.person.column, form.session.column, form.label.column]
    if unlabelled or (sensor != form.sensors[0] and not _are_in_lines(form)):
        columns_of_words = []
    text_columns = [name for name in columns_of_words if name]
    member = sheaf.files[sensor]
    reader = _kind(member, form)(member, form, columns, text_columns, damage, sensor)
    rows = _of_one_source(reader, member.where, form, unlabelled)
    if not form.time.spread:
        yield from rows
        return
    readings = whole(rows)
    for places in _groups(readings, form).values():
        readings.times[places] = spread(readings.times[places])
    yield readings


def _of_one_source(
    reader: TextRows, where: str, form: RecordingFormat, unlabelled: bool
) -> Iterator[Rows]:
    """Yield the readings. Raises DataError where columns say that they are of several sources."""
    begin: list[Rows] = []
    for chunk in reader.chunks():
        if chunk.other_columns:
            begin.append(chunk)
        else:
            _refuse_sources(begin, where, form, unlabelled)
            begin = []
        yield chunk
    _refuse_sources(begin, where, form, unlabelled)
    reader.refuse_in_turn()


def _refuse_sources(
    begin: Sequence[Rows], where: str, form: RecordingFormat, unlabelled: bool
) -> None:
    """Raises DataError where a column says that a session's readings are of several sources.

    Also where it has dates, but no column is the time.
    """
    if not begin:
        return
    rows = whole(begin)
    for name, cells in rows.other_columns.items() if form.time.column is None else ():
        column = look_at(name, [cell.strip() for cell in cells])
        if column.is_time and column.numbers is None:
            how = " or ".join(f"time.pattern: {pattern!r}" for pattern in column.patterns)
            raise DataError(
                f"{where}: {column.line:.90} has times, but time.hertz alone counts rows, whatever"
                f" is missing between them; write time.column: {name} and"
                f" {how or 'time.unit: iso'}, also time.spread: true if many rows have one time"
            )
    for places in _groups(rows, form).values():
        for name, cells in rows.other_columns.items():
            owner_cells = [cells[at] for at in places.tolist()]
            if says_source(owner_cells, rows.values[places]):
                several = ", ".join(sorted(set(owner_cells))[:MOST_NAMED])
                remedy = f"write session.column: {name} for devices"
                if unlabelled:
                    remedy = "write a file of each device"
                raise DataError(
                    f"{where}: {name} ({several:.80}) changes from reading to reading, so it says"
                    f" a device or sensor; {remedy}, or text.sensor: {name} with `sensor` of each"
                    " channel"
                )


def _groups(rows: Rows, form: RecordingFormat) -> dict[tuple[str, ...], Places]:
    """Return the places of the readings of each person and session that columns say."""
    names = [part.column for part in (form.person, form.session)]
    columns = [rows.text_columns[name] for name in names if name in rows.text_columns]
    return places_by(zip(*columns, strict=True) if columns else [()] * len(rows.times))


def places_by(keys: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], Places]:
    """Return the places of readings, in their order, by the words that each has."""
    places = defaultdict(list)
    for at, key in enumerate(keys):
        places[key].append(at)
    return {key: np.array(key_places) for key, key_places in places.items()}


def _rows_at(rows: Rows, places: Places) -> Rows:
    """Return the readings of these places."""
    text_columns = {
        name: [cells[at] for at in places.tolist()] for name, cells in rows.text_columns.items()
    }
    return Rows(rows.times[places], rows.values[places], text_columns)


def _kind(member: Member, form: RecordingFormat) -> type[TextRows]:
    """Return what reads a file."""
    if form.array is not None:
        return ArrayRows
    if form.sheets:
        return SheetRows
    if member.name.lower().endswith(PARQUET):
        return ParquetRows
    if form.json_ is not None:
        return JsonRows
    return TextRows


def _refuse_other_length(sheaf: Sheaf, form: RecordingFormat, sensor_rows: Sequence[Rows]) -> None:
    """Raises DataError for sensors without times that have more or fewer rows than the first."""
    first, *other_lengths = [
        (sheaf.files[sensor].where, len(part.times))
        for sensor, part in zip(form.sensors, sensor_rows, strict=True)
    ]
    for where, rows in other_lengths:
        if rows != first[1]:
            raise DataError(
                f"{where}: expected the {first[1]} rows of {first[0]}, got {rows}; one of the two"
                " was cut short, restore both"
            )


def _refuse_apart(
    sheaf: Sheaf, form: RecordingFormat, sensor_rows: Sequence[Rows], is_near: Flags
) -> None:
    """Raises DataError for sensors that have readings, but never at the same time."""
    if is_near.any() or not all(len(part.times) for part in sensor_rows):
        return
    spans = [
        f"{sensor} from {part.times.min():.12g} to {part.times.max():.12g} s"
        for sensor, part in zip(form.sensors, sensor_rows, strict=True)
    ]
    where = sheaf.files[form.sensors[0]].where
    raise DataError(
        f"{where}: the sensors of a recording have no time in common: {', '.join(spans)}; give them"
        " one clock, or leave the recording out"
    )


def _at(times: Numbers, part: Rows, gap: float) -> tuple[Numbers, Flags]:
    """Return a sensor's values at these times, and where it has readings near enough."""
    sensor_times, rows = np.unique(part.times, return_index=True)
    if not len(sensor_times):
        return np.zeros((len(times), part.values.shape[1])), np.zeros(len(times), np.bool_)
    after = np.searchsorted(sensor_times, times, side="left").clip(0, len(sensor_times) - 1)
    before = np.where(sensor_times[after] == times, after, after - 1).clip(0)
    is_within = (times >= sensor_times[0]) & (times <= sensor_times[-1])
    values = [np.interp(times, sensor_times, column) for column in part.values[rows].T]
    return np.stack(values, axis=1), is_within & (sensor_times[after] - sensor_times[before] <= gap)


MOST_RECORDINGS_NAMED = 5


def readings(
    source: Path,
    form: RecordingFormat,
    model: Signals,
    damage: Damage,
    members: Iterable[Member] | None = None,
) -> Iterator[Numbers]:
    """Yield readings of the one recording in `source`, (n, 1 + inputs).

    They are seconds, and what the model takes of a reading, in its order and units: for the nine
    channels the first acceleration with gravity and the first rotation. Sensors that it does not
    take are not read; `damage` counts what is left out. Folders that a pattern begins with, and
    that say one thing each, are not asked for. `members` are the files, where they are listed
    already. Raises DataError that names what is missing.
    """
    form, inputs = _of_model(source, form, model)
    recordings = sheaves(source, form, unlabelled=True, members=members)
    if len(recordings) > 1:
        named = ", ".join(sheaf.name for sheaf in recordings[:MOST_RECORDINGS_NAMED])
        raise DataError(
            f"{source}: expected one recording, got {len(recordings)}: {named:.200}; name one of"
            " them"
        )
    mixing = form.mixing
    for rows in rows_of(recordings[0], form, damage, unlabelled=True):
        values = inputs.applied_to(rows.values @ mixing)
        yield np.concatenate([rows.times[:, np.newaxis], values], axis=1)
    damage.refuse(form.bad_lines)


def _of_model(
    source: Path, form: RecordingFormat, model: Signals
) -> tuple[RecordingFormat, InputMapping]:
    """Return the format without sensors that the model does not take, and how its inputs follow."""
    if takes_nine(model):
        pair = first_vectors(source, form, "label it with another model")
        names = tuple(name for sensor in pair for name in sensor.channels)
        form = form.narrowed(names)
        places = tuple(form.channel_names.index(name) for name in names)
        return form, InputMapping(places, (1.0,) * len(OF_NINE_CHANNELS.channels))
    try:
        input_mapping(signals_of(form), model)
        form = form.narrowed(model.channels)
        return form, input_mapping(signals_of(form), model)
    except UsageError as problem:
        raise DataError(f"{source}: {problem}") from None


MOST_DAMAGED = 0.5
"""The share of the first lines that may be no readings."""
_NO_NAME = re.compile(r"\{[^{}]*\}|\.\w+$")


@dataclass(frozen=True)
class Fits:
    """The formats that fit.

    by_name: their names of files or columns are those of the recordings. by_shape: as many columns
    of numbers, but no name says that it is this one. `is_labelled` says whether the paths have the
    folders that say who, and what was done.
    """

    by_name: Sequence[str]
    by_shape: Sequence[str]
    is_labelled: bool


def fits(source: Path, members: Sequence[Member]) -> Fits:
    """Return the known formats that the files of a source fit."""
    formats = Fits((), (), True)
    for is_labelled in (True, False):
        reasons = {name: _fits(source, members, name, is_labelled) for name in names()}
        formats = Fits(
            [name for name, is_named in reasons.items() if is_named],
            [name for name, is_named in reasons.items() if is_named is False],
            is_labelled,
        )
        if formats.by_name or formats.by_shape:
            break
    return formats


def _fits(source: Path, members: Sequence[Member], name: str, is_labelled: bool) -> bool | None:
    """Return whether names, or the shape alone, are those of a format; None for neither."""
    form = described(name, source)
    try:
        recordings = sheaves(source, form, unlabelled=not is_labelled, members=members)
        if not all(_reads(recordings[0], form, sensor, is_labelled) for sensor in form.sensors):
            return None
    except DataError:
        return None
    if not form.text.given_names:
        return True
    patterns = [
        pattern for pattern in form.files if re.search(r"[A-Za-z]", _NO_NAME.sub("", pattern))
    ]
    return any(
        PathPattern(pattern).fits(member.name)
        for pattern in patterns
        for member in recordings[0].files.values()
    )


def _reads(sheaf: Sheaf, form: RecordingFormat, sensor: str | None, is_labelled: bool) -> bool:
    """Return whether the first readings of a sensor are those of the format. Raises DataError."""
    if form.text.given_names and form.array is None:
        sheets = sheets_of(sheaf.files[sensor])
        if not sheets or sheets[0].has_names:
            return False
    damage = Damage()
    rows = next(rows_of_sensor(sheaf, form, sensor, damage, not is_labelled))
    if len(rows.values) < 2 or damage.bad > MOST_DAMAGED * damage.lines:
        return False
    rate = rate_of(rows.times)
    is_plausible = rate is not None and times_problem(1 / rate) is None
    return form.time.column is None or is_plausible
