"""Lines of text as columns of words and numbers, some thousands at a time.

A damaged line is left out and counted, with the first one as an example; a share of them is
allowed, which a format or a person says.
"""

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import compress, islice
from operator import itemgetter
from typing import IO

import numpy as np
from numpy.typing import NDArray

from core.data.archive import one_line
from core.data.described.description import RecordingFormat
from core.data.described.members import Member
from core.data.described.moments import is_of_day, moment_of, seconds_of, zone_of
from core.data.described.text_bytes import DAMAGE, TextBytes, header_of, lines_of
from core.data.recordings import no_number, number
from core.ground.errors import DataError

AT_ONCE = 512
"""Lines of a chunk: small enough that their text stays in the cache of a processor."""
LEAST_ROWS = 16
LACKING = 0.2
"""The share of readings that may lack a column that others have."""
LOOKED_AT = 4096
"""Readings of a file from which it is judged whether they are of one source."""
MOST_BAD = 0.5
"""The most that `bad_lines` may be: more are another form, not damage."""
LOCAL = "without a zone"
ZONED = "with a zone"

Numbers = NDArray[np.float64]


@dataclass
class Damage:
    """Lines that are no reading: how many of how many, and the first one in words."""

    lines: int = 0
    bad: int = 0
    missing: int = 0
    apart: int = 0
    """Readings of the first sensor without one of each other sensor near."""
    first: str = ""
    clocks: set[str] = field(default_factory=set)
    """LOCAL, ZONED or both, as dates were written."""
    bytes_done: int = 0
    """Bytes of the text that is being read."""

    def add(self, place: str, problem: str, lines: int = 1) -> None:
        """Count one, or as many as a value takes."""
        self.bad += lines
        self.first = self.first or f"{place}: {problem}"

    def note(self) -> str:
        """Return what was left out, in words; empty where nothing was."""
        counts = {
            "bad lines": self.bad,
            "readings with a missing value": self.missing,
            "readings without all sensors": self.apart,
        }
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)

    def refuse(self, share: float) -> None:
        """Raises DataError, with the first one, where there are more than `share` of all."""
        if self.bad > share * self.lines:
            remedy = "correct them, or set jobs.train.data.bad_lines"
            if self.bad > MOST_BAD * self.lines:
                remedy = "describe the file as it is in a format of your own"
            raise DataError(
                f"{self.first}; {self.bad} of {self.lines} lines are no readings, and"
                f" {share:.2%} may be: {remedy}"
            )


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


class TextRows:
    """The readings of one file."""

    def __init__(
        self,
        member: Member,
        form: RecordingFormat,
        columns: Sequence[str],
        text_columns: Sequence[str],
        damage: Damage,
        sensor: str | None = None,
    ) -> None:
        """Read `columns`, those of the channels, and `text_columns`, the others.

        `sensor` is whose readings these are, in a file that has those of several.
        """
        self._member = member
        self._form = form
        self._columns = columns
        self._text_columns = text_columns
        self._damage = damage
        self._sensor = sensor
        self._hertz = form.time.hertz
        self._limit = float(np.finfo(np.float32).max) if form.as_recorded else np.inf
        self._rows = 0
        self._other_columns: dict[str, int] = {}
        self._turns = 0  # readings that lack other columns than the one before
        self._lacking = np.zeros(len(columns), np.int64)  # readings that have others alone
        self._zone = None if form.time.zone is None else zone_of(form.time.zone)
        self._is_zoned: bool | None = None
        self._last: float | None = None  # time of a day

    def chunks(self) -> Iterator[Rows]:
        """Yield the readings in the order of the lines. Raises DataError."""
        form = self._form.text
        encoding = form.encoding.replace("utf-8", "utf-8-sig")
        with (
            self._content() as raw,
            TextBytes(raw, self._member.where, self._member.size) as content,
            io.TextIOWrapper(content, encoding) as it,
        ):
            line = 1
            places: dict[str, int] = {}
            width = len(form.given_names)
            if width:
                places = self._places(form.given_names, 0)
            is_begin = bool(form.names)
            try:
                line += sum(1 for _ in islice(it, form.skip_lines))
                lines = lines_of(it, form)
                before = line
                while rows := list(islice(lines, AT_ONCE)):
                    first = line
                    line = before + getattr(lines, "line_num", line + len(rows) - before)
                    is_torn = line - first > len(rows)
                    self._damage.bytes_done = content.done
                    if not places or is_begin:
                        at, names = header_of(rows, form)
                        if names and (not places or set(self._columns) <= set(names)):
                            places = self._places(names, first + at)
                            width = len(names)
                            rows = rows[at + 1 :]
                            first += at + 1
                        elif not places:
                            continue
                    is_begin = False
                    if is_torn:
                        rows = self._without_torn(rows, first)
                    yield self._chunk(rows, first, places, width)
            except UnicodeError as problem:
                raise DataError(
                    f"{self._member.where}: expected {form.encoding}, got"
                    f" {one_line(problem)[:80]}; say text.encoding"
                ) from None
            except DAMAGE as problem:
                raise DataError(
                    f"{self._member.where}:{line}: {one_line(problem)[:80]}; correct the line, or"
                    " fetch the file again"
                ) from None
            if not places:
                raise DataError(f"{self._member.where}: expected a line of names, got none")
            yield self._chunk([], line, places, width)

    def _of_table(self, names: Sequence[str], cells: Iterator[list[str]]) -> Iterator[Rows]:
        """Yield the readings of a table: the names of its columns, and the values of each row."""
        places = self._places(names, 1)
        first = 1
        while rows := list(islice(cells, AT_ONCE)):
            yield self._chunk(rows, first, places, len(names))
            first += len(rows)

    def refuse_in_turn(self) -> None:
        """Raises DataError where readings lack now these columns, now those."""
        least = LACKING * max(LEAST_ROWS, self._rows)
        if self._turns > LACKING / 2 * self._rows and self._lacking.max() > least:
            lacking = [self._columns[at] for at in np.flatnonzero(self._lacking).tolist()]
            raise DataError(
                f"{self._member.where}: of {self._rows} readings many lack {', '.join(lacking)} in"
                " turn, as those of several sensors; write text.in_turn: true and `sensor` of each"
                " channel, or give the sensors files of their own"
            )

    def _content(self) -> AbstractContextManager[IO[bytes]]:
        """Open the text."""
        return self._member.open()

    def _places(self, names: Sequence[str], line: int) -> dict[str, int]:
        """Return where the columns stand that are asked for. Raises DataError for a missing one."""
        required_columns = [*self._columns, *self._text_columns, *(self._form.time.column or ())]
        if self._sensor is not None and self._form.text.sensor is not None:
            required_columns.append(self._form.text.sensor)
        for name in required_columns:
            if names.count(name) != 1:
                actual_columns = "it twice" if name in names else ", ".join(names)
                raise DataError(
                    f"{self._member.where}:{line}: expected a column {name!r:.60}, got"
                    f" {actual_columns:.160}; describe the file as it is in a format of your own"
                )
        read_names = {"", *required_columns} - {self._form.label.column}
        self._other_columns = {name: at for at, name in enumerate(names) if name not in read_names}
        return {name: names.index(name) for name in required_columns}

    def _chunk(
        self, rows: Sequence[list[str]], first: int, places: dict[str, int], width: int
    ) -> Rows:
        numbers: Sequence[int] = range(first, first + len(rows))
        readings = rows
        if self._form.text.comment or set(map(len, rows)) != {width}:
            readings, numbers = self._whole(rows, first, 1 + max(places.values()), width)
        if self._sensor is not None:
            is_of_sensor = [self._is_own(row, places) for row in readings]
            readings = list(compress(readings, is_of_sensor))
            numbers = list(compress(numbers, is_of_sensor))
        self._damage.lines += len(readings)
        cells = {name: tuple(map(itemgetter(at), readings)) for name, at in places.items()}
        good = np.ones(len(readings), np.bool_)
        columns = [self._numbers(cells[name], name, numbers, good) for name in self._columns]
        values = np.reshape(columns, (len(columns), len(readings))).T
        lacks = np.isnan(values)
        self._turns += int(np.diff(lacks, axis=0).any(axis=1).sum())
        self._lacking += lacks[~lacks.all(axis=1)].sum(axis=0)
        missing = lacks.any(axis=1) & good
        self._damage.missing += int(missing.sum())
        good &= ~missing
        time = self._form.time.column
        if time is not None:
            written = list(map(" ".join, zip(*(cells[name] for name in time), strict=True)))
            times = self._times(written, " ".join(time), numbers, good)
        else:
            assert self._hertz is not None
            times = np.arange(self._rows, self._rows + len(readings)) / self._hertz
        other_columns = {}
        if self._rows < LOOKED_AT:
            other_columns = {
                name: list(compress([row[at] if at < len(row) else "" for row in readings], good))
                for name, at in self._other_columns.items()
            }
        self._rows += len(readings)
        text_columns = {name: list(compress(cells[name], good)) for name in self._text_columns}
        return Rows(times[good], values[good], text_columns, other_columns)

    def _without_torn(self, rows: Sequence[list[str]], first: int) -> list[list[str]]:
        """Return the lines, blank where a quote that is not closed took them for one value."""
        untorn_rows: list[list[str]] = []
        for row in rows:
            lines = 1 + sum(cell.count("\n") for cell in row)
            if lines == 1:
                untorn_rows.append(row)
                continue
            place = f"{self._member.where}:{first + len(untorn_rows)}"
            self._damage.lines += lines
            self._damage.add(place, f"a quoted value goes over {lines} lines", lines)
            untorn_rows += [[]] * lines
        return untorn_rows

    def _whole(
        self, rows: Sequence[list[str]], first: int, least: int, width: int
    ) -> tuple[list[list[str]], list[int]]:
        """Return the lines that are no comments and have all values, and their numbers."""
        comment = self._form.text.comment
        complete_rows = []
        numbers = []
        for line, row in enumerate(rows, first):
            if not row or (comment and row[0].startswith(comment)):
                continue
            if len(row) < least or (len(row) > width and any(row[width:])):
                self._damage.lines += 1
                self._damage.add(
                    f"{self._member.where}:{line}", f"expected {width} values, got {len(row)}"
                )
                continue
            complete_rows.append(row)
            numbers.append(line)
        return complete_rows, numbers

    def _is_own(self, row: Sequence[str], places: dict[str, int]) -> bool:
        """Whether a line has values of the sensor."""
        form = self._form.text
        if form.sensor is not None:
            return row[places[form.sensor]].strip() == self._sensor
        cells = (row[places[name]].strip() for name in self._columns)
        return not form.in_turn or any(cell not in self._form.missing for cell in cells)

    def _times(
        self, cells: Sequence[str], name: str, lines: Sequence[int], good: NDArray[np.bool_]
    ) -> Numbers:
        form = self._form.time
        if form.unit != "iso" and form.pattern is None:
            times = self._numbers(cells, name, lines, good)
            missing = np.isnan(times) & good
            self._damage.missing += int(missing.sum())
            good &= ~missing
            return times / SECOND[form.unit]
        of_day = is_of_day(form.pattern)
        expected = form.written
        seconds = np.zeros(len(cells))
        for row, cell in enumerate(cells):
            try:
                moment = moment_of(cell.strip(), form.pattern)
                seconds[row] = seconds_of(moment, self._zone, of_day=of_day)
            except ValueError:
                self._bad(lines[row], name, expected, cell, good, row)
                continue
            is_zoned = moment.tzinfo is not None
            if self._is_zoned not in (None, is_zoned):
                how = ZONED if self._is_zoned else LOCAL
                self._bad(lines[row], name, f"a time {how}, as before", cell, good, row)
                continue
            self._is_zoned = is_zoned
        if of_day and good.any():
            before = seconds[good][:1] if self._last is None else [self._last]
            seconds[good] = np.unwrap([*before, *seconds[good]], period=86400.0)[1:]
            self._last = float(seconds[good][-1])
        elif self._is_zoned is not None:
            self._damage.clocks.add(ZONED if self._is_zoned or self._zone else LOCAL)
        return seconds

    def _numbers(
        self, cells: Sequence[str], name: str, lines: Sequence[int], good: NDArray[np.bool_]
    ) -> Numbers:
        """Return a column as numbers, NaN where a value is missing; what is neither is bad."""
        written = cells
        expected = "a number"
        if self._form.text.decimal == ",":
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
                if cell not in self._form.missing:
                    self._bad(lines[row], name, expected, written[row].strip(), good, row)
        return values

    def _bad(
        self, line: int, name: str, expected: str, cell: str, good: NDArray[np.bool_], row: int
    ) -> None:
        if not good[row]:
            return
        good[row] = False
        why = no_number(cell) if self._form.text.decimal == "." else None
        also = f": {why}" if why else ""
        self._damage.add(
            f"{self._member.where}:{line}", f"{name}: expected {expected}, got {cell!r:.60}{also}"
        )


SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""Units that make one second."""
