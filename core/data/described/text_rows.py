"""Lines of text as columns of words and numbers, some thousands at a time.

A damaged line is left out and counted, with the first one as an example; a share of them is
allowed, which a format or a person says.
"""

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain, compress, islice
from operator import itemgetter
from typing import IO

import numpy as np
from numpy.typing import NDArray

from core.data.archive import one_line
from core.data.arrays import Flags, Numbers
from core.data.described.description import RecordingFormat
from core.data.described.members import Member
from core.data.described.moments import is_of_day, moment_of, seconds_of, zone_of
from core.data.described.text_bytes import (
    DAMAGE,
    Damage,
    NumberedRows,
    TextBytes,
    lines_of,
    names_of,
)
from core.data.recordings import no_number, number
from core.ground.errors import DataError

Readings = tuple[Sequence[int], Sequence[list[str]]]
"""Numbers of lines, and the values of each."""

AT_ONCE = 512
"""Lines of a chunk: small enough that their text stays in the cache of a processor."""
LEAST_ROWS = 16
LACKING = 0.2
"""The share of readings that may lack a column that others have."""
LOOKED_AT = 4096
"""Readings of a file from which it is judged whether they are of one source."""
LOCAL = "without a zone"
ZONED = "with a zone"


@dataclass(frozen=True)
class Rows:
    """Readings: seconds (n,); values (n, channels) as written.

    text_columns: the word of each reading in the other columns that were asked for; other_columns:
    in those that were not and that of the label, of the first readings.
    """

    times: Numbers
    values: Numbers
    text_columns: dict[str, list[str]] = field(default_factory=dict)
    other_columns: dict[str, list[str]] = field(default_factory=dict)


def whole(chunks: Iterable[Rows]) -> Rows:
    """Return the readings of at least one chunk as one."""
    every = list(chunks)
    text_columns: dict[str, list[str]] = defaultdict(list)
    other_columns: dict[str, list[str]] = defaultdict(list)
    for chunk in every:
        for name, cells in chunk.text_columns.items():
            text_columns[name] += cells
        for name, cells in chunk.other_columns.items():
            other_columns[name] += cells
    times = np.concatenate([chunk.times for chunk in every])
    return Rows(
        times, np.concatenate([chunk.values for chunk in every]), text_columns, other_columns
    )


@dataclass
class TextRows:
    """The readings of one file."""

    member: Member
    form: RecordingFormat
    columns: Sequence[str]
    """Columns of the channels."""
    text_columns: Sequence[str]
    """The others."""
    damage: Damage
    sensor: str | None = None
    """Whose readings these are, in a file that has those of several."""
    hertz: float | None = field(init=False)
    _rows: int = 0
    _places: dict[str, int] = field(default_factory=dict)
    """Where the columns stand that are asked for."""
    _width: int = 0
    _other_columns: dict[str, int] = field(default_factory=dict)
    _turns: int = 0
    """Readings that lack other columns than the one before."""
    _lacking: int | NDArray[np.int64] = 0
    """Readings that lack each column but have others."""
    _is_zoned: bool | None = None
    _last: float | None = None
    """The last time of a day."""

    def __post_init__(self) -> None:
        """Take what the format says of times and sizes."""
        self.hertz = self.form.time.hertz
        if self.form.as_recorded:
            self._limit = float(np.finfo(np.float32).max)
        else:
            self._limit = np.inf
        zone = self.form.time.zone
        if zone is None:
            self._zone = None
        else:
            self._zone = zone_of(zone)

    def chunks(self) -> Iterator[Rows]:
        """Yield the readings in the order of the lines. Raises DataError."""
        form = self.form.text
        encoding = form.encoding.replace("utf-8", "utf-8-sig")
        where = self.member.where
        line = 1
        with (
            self._content() as raw,
            TextBytes(raw, where, self.member.size) as content,
            io.TextIOWrapper(content, encoding) as stream,
        ):
            try:
                blank = ["" for _ in islice(stream, form.skip_lines)]
                line += len(blank)
                if form.given_names:
                    self._set_names(form.given_names, 0)
                rows = NumberedRows(lines_of(chain(blank, stream), form))
                for lines, readings in self._readings(rows, has_head=True):
                    line = lines[-1] + 1
                    self.damage.bytes_done = content.done
                    yield self._chunk(lines, readings)
            except UnicodeError as problem:
                raise DataError(
                    f"{where}: expected {form.encoding}, got {one_line(problem)[:80]}; say"
                    " text.encoding"
                ) from None
            except DAMAGE as problem:
                raise DataError(
                    f"{where}:{line}: {one_line(problem)[:80]}; correct the line, or fetch the file"
                    " again"
                ) from None
        if not self._places:
            raise DataError(f"{where}: expected a line of names, got none")
        yield self._chunk([], [])

    def _head(
        self, before: int, numbers: Sequence[int], rows: Sequence[list[str]]
    ) -> tuple[int, bool]:
        """Return how many of the first lines are no readings, and whether the names are known.

        The lines stand behind the line `before`. Raises DataError for a missing name.
        """
        form = self.form.text
        begin = 0
        for at, values in enumerate(rows):
            if values and values[0].lower().startswith("sep="):
                begin = at + 1
                continue
            names = names_of(values, form)
            if not names:
                continue
            if form.given_names and not (form.names and set(self.columns) <= set(names)):
                return begin, True
            self._set_names(names, 1 + (numbers[at - 1] if at else before))
            return at + 1, True
        return begin if form.given_names else len(rows), False

    def _of_table(self, names: Sequence[str], cells: Iterable[list[str]]) -> Iterator[Rows]:
        """Yield the readings of a table: the names of its columns, and the values of each row."""
        self._set_names(names, 1)
        for lines, readings in self._readings(NumberedRows(cells)):
            yield self._chunk(lines, readings)

    def refuse_in_turn(self) -> None:
        """Raises DataError where readings lack now these columns, now those."""
        least = LACKING * max(LEAST_ROWS, self._rows)
        if self._turns > LACKING / 2 * self._rows and np.max(self._lacking) > least:
            lacking = [self.columns[at] for at in np.flatnonzero(self._lacking).tolist()]
            raise DataError(
                f"{self.member.where}: of {self._rows} readings many lack {', '.join(lacking)} in"
                " turn, as those of several sensors; write text.in_turn: true and `sensor` of each"
                " channel, or give the sensors files of their own"
            )

    def _content(self) -> AbstractContextManager[IO[bytes]]:
        """Open the text."""
        return self.member.open()

    def _set_names(self, names: Sequence[str], line: int) -> None:
        """Find the columns that are asked for. Raises DataError for a missing one."""
        required_columns = [*self.columns, *self.text_columns, *(self.form.time.column or ())]
        if self.sensor is not None and self.form.text.sensor is not None:
            required_columns.append(self.form.text.sensor)
        for name in required_columns:
            if names.count(name) != 1:
                actual_columns = "it twice" if name in names else ", ".join(names)
                raise DataError(
                    f"{self.member.where}:{line}: expected a column {name!r:.60}, got"
                    f" {actual_columns:.160}; describe the file as it is in a format of your own"
                )
        read_names = {"", *required_columns} - {self.form.label.column}
        self._other_columns = {name: at for at, name in enumerate(names) if name not in read_names}
        self._places = {name: names.index(name) for name in required_columns}
        self._width = len(names)

    def _readings(self, rows: NumberedRows, *, has_head: bool = False) -> Iterator[Readings]:
        """Yield numbers and values of some lines that are no comments, whole, and of the sensor.

        With `has_head` the names of the columns come first, unless the format gives them.
        """
        before = rows.line
        while (batch := rows.take(AT_ONCE))[1]:
            numbers, lines = batch
            if has_head:
                begin, is_known = self._head(before, numbers, lines)
                has_head = not is_known
                if begin:
                    before = numbers[begin - 1]
                    numbers = numbers[begin:]
                    lines = lines[begin:]
            if lines:
                yield from self._of_batch(before, numbers, lines)
            before = rows.line

    def _of_batch(
        self, before: int, numbers: Sequence[int], rows: Sequence[list[str]]
    ) -> Iterator[Readings]:
        """Yield what is a reading of these lines, which stand behind the line `before`."""
        comment = self.form.text.comment
        has_sensor = self.sensor is not None
        is_plain = isinstance(numbers, range) and not comment and not has_sensor
        if is_plain and set(map(len, rows)) == {self._width}:
            yield numbers, rows
            return
        lines = []
        readings = []
        for line, values in zip(numbers, rows, strict=True):
            is_doubtful = (
                len(values) != self._width
                or line - before > 1
                or has_sensor
                or (comment and values[0].startswith(comment))
            )
            if not is_doubtful or self._is_reading(before, values, line):
                lines.append(line)
                readings.append(values)
            before = line
        if readings:
            yield lines, readings

    def _is_reading(self, before: int, values: Sequence[str], line: int) -> bool:
        """Whether a line is one of the sensor; what is damaged is counted."""
        comment = self.form.text.comment
        lines = line - before
        problem = ""
        if not values or (comment and values[0].startswith(comment)):
            return False
        if lines > 1:
            problem = f"a quoted value goes over {lines} lines"
        elif len(values) != self._width and (
            len(values) <= max(self._places.values()) or any(values[self._width :])
        ):
            problem = f"expected {self._width} values, got {len(values)}"
        if problem:
            self.damage.lines += lines
            self.damage.add(f"{self.member.where}:{before + 1}", problem, lines)
            return False
        return self.sensor is None or self._is_own(values)

    def _is_own(self, values: Sequence[str]) -> bool:
        """Whether a line has values of the sensor."""
        form = self.form.text
        if form.sensor is not None:
            return values[self._places[form.sensor]].strip() == self.sensor
        cells = (values[self._places[name]].strip() for name in self.columns)
        return not form.in_turn or any(cell not in self.form.missing for cell in cells)

    def _chunk(self, lines: Sequence[int], readings: Sequence[list[str]]) -> Rows:
        good = np.ones(len(readings), np.bool_)
        cells = {name: tuple(map(itemgetter(at), readings)) for name, at in self._places.items()}
        self.damage.lines += len(readings)
        columns = [self._numbers(cells[name], name, lines, good) for name in self.columns]
        values = np.reshape(columns, (len(columns), len(readings))).T
        lacks = np.isnan(values)
        self._turns += int(np.diff(lacks, axis=0).any(axis=1).sum())
        self._lacking = self._lacking + lacks[~lacks.all(axis=1)].sum(axis=0)
        self._leave_out_missing(np.any(lacks, axis=1), good)
        if self.form.time.column is not None:
            time_cells = zip(*(cells[name] for name in self.form.time.column), strict=True)
            written = list(map(" ".join, time_cells))
            times = self._times(written, " ".join(self.form.time.column), lines, good)
        else:
            assert self.hertz is not None
            times = np.arange(self._rows, self._rows + len(readings)) / self.hertz
        other_columns = {}
        if self._rows < LOOKED_AT:
            other_columns = {
                name: [
                    values[at] if at < len(values) else "" for values in compress(readings, good)
                ]
                for name, at in self._other_columns.items()
            }
        self._rows += len(readings)
        text_columns = {name: list(compress(cells[name], good)) for name in self.text_columns}
        return Rows(times[good], values[good], text_columns, other_columns)

    def _leave_out_missing(self, lacks: Flags, good: Flags) -> None:
        self.damage.missing += int((lacks & good).sum())
        good &= ~lacks

    def _times(self, cells: Sequence[str], name: str, lines: Sequence[int], good: Flags) -> Numbers:
        form = self.form.time
        if form.unit != "iso" and form.pattern is None:
            times = self._numbers(cells, name, lines, good)
            self._leave_out_missing(np.isnan(times), good)
            return times / SECOND[form.unit]
        of_day = is_of_day(form.pattern)
        seconds = np.zeros(len(cells))
        for row, cell in enumerate(cells):
            expected = form.written
            try:
                moment = moment_of(cell.strip(), form.pattern)
                seconds[row] = seconds_of(moment, self._zone, of_day=of_day)
                is_zoned = moment.tzinfo is not None
                if self._is_zoned not in (None, is_zoned):
                    expected = f"a time {ZONED if self._is_zoned else LOCAL}, as before"
                    raise ValueError
                self._is_zoned = is_zoned
            except ValueError:
                self._bad(lines[row], name, expected, cell, good, row)
        if of_day and good.any():
            before = seconds[good][:1] if self._last is None else [self._last]
            seconds[good] = np.unwrap([*before, *seconds[good]], period=86400.0)[1:]
            self._last = float(seconds[good][-1])
        elif self._is_zoned is not None:
            self.damage.clocks.add(ZONED if self._is_zoned or self._zone else LOCAL)
        return seconds

    def _numbers(
        self, cells: Sequence[str], name: str, lines: Sequence[int], good: Flags
    ) -> Numbers:
        """Return a column as numbers, NaN where a value is missing; what is neither is bad."""
        written = cells
        expected = "a number"
        if self.form.text.decimal == ",":
            expected = "a number with a decimal comma and no other separator"
            cells = [cell.replace(",", ".") if "." not in cell else f"{cell}?" for cell in cells]
        try:
            values = np.fromiter(map(float, cells), np.float64, len(cells))
        except ValueError:
            values = np.full(len(cells), np.nan)
        odd = ~(np.abs(values) < self._limit)
        if "_" in "".join(cells):
            odd[:] = True
        for row in np.flatnonzero(odd).tolist():
            cell = cells[row].strip()
            values[row] = number(cell)
            if not abs(values[row]) < self._limit:
                values[row] = np.nan
                if cell not in self.form.missing:
                    self._bad(lines[row], name, expected, written[row].strip(), good, row)
        return values

    def _bad(self, line: int, name: str, expected: str, cell: str, good: Flags, row: int) -> None:
        if not good[row]:
            return
        good[row] = False
        if self.form.text.decimal == ".":
            why = no_number(cell)
        else:
            why = None
        also = f": {why}" if why else ""
        self.damage.add(
            f"{self.member.where}:{line}", f"{name}: expected {expected}, got {cell!r:.60}{also}"
        )


SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""Units that make one second."""
