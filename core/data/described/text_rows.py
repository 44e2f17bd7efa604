"""Lines of text as columns of words and numbers, some thousands at a time.

A damaged line is left out and counted, with the first one as an example; a share of them is
allowed, which a format or a person says.
"""

import csv
import io
import zipfile
import zlib
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
from core.data.described.text_bytes import TextBytes, header_of, lines_of
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
"""What `bad_lines` may be at most: more are another form, not damage."""
DAMAGE = (csv.Error, EOFError, OSError, zlib.error, zipfile.BadZipFile)
"""What reading raises over a line that no text has, and over a damaged archive."""
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
    """Of the text that is being read."""

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

    words: the word of each reading in the other columns that were asked for; others: in those that
    were not and that of the label, of the first readings.
    """

    times: Numbers
    values: Numbers
    words: dict[str, list[str]] = field(default_factory=dict)
    others: dict[str, list[str]] = field(default_factory=dict)


def whole(chunks: Iterable[Rows]) -> Rows:
    """Return the readings of at least one chunk as one."""
    every = list(chunks)
    words: dict[str, list[str]] = defaultdict(list)
    others: dict[str, list[str]] = defaultdict(list)
    for chunk in every:
        for name, cells in chunk.words.items():
            words[name] += cells
        for name, cells in chunk.others.items():
            others[name] += cells
    times = np.concatenate([chunk.times for chunk in every])
    return Rows(times, np.concatenate([chunk.values for chunk in every]), words, others)


class TextRows:
    """The readings of one file."""

    def __init__(
        self,
        member: Member,
        form: RecordingFormat,
        columns: Sequence[str],
        words: Sequence[str],
        damage: Damage,
        sensor: str | None = None,
    ) -> None:
        """`columns` are those of the channels, `words` others that are asked for.

        `sensor` is whose readings these are, in a file that has those of several.
        """
        self._member = member
        self._form = form
        self._columns = columns
        self._words = words
        self._damage = damage
        self._sensor = sensor
        self._hertz = form.time.hertz
        self._limit = float(np.finfo(np.float32).max) if form.as_recorded else np.inf
        self._rows = 0
        self._others: dict[str, int] = {}
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
        return self._member.opened()

    def _places(self, names: Sequence[str], line: int) -> dict[str, int]:
        """Return where the columns stand that are asked for. Raises DataError for a missing one."""
        wanted = [*self._columns, *self._words, *(self._form.time.column or ())]
        if self._sensor is not None and self._form.text.sensor is not None:
            wanted.append(self._form.text.sensor)
        for name in wanted:
            if names.count(name) != 1:
                got = "it twice" if name in names else ", ".join(names)
                raise DataError(
                    f"{self._member.where}:{line}: expected a column {name!r:.60}, got {got:.160};"
                    " describe the file as it is in a format of your own"
                )
        own = {"", *wanted} - {self._form.label.column}
        self._others = {name: at for at, name in enumerate(names) if name not in own}
        return {name: names.index(name) for name in wanted}

    def _chunk(
        self, rows: Sequence[list[str]], first: int, places: dict[str, int], width: int
    ) -> Rows:
        numbers: Sequence[int] = range(first, first + len(rows))
        kept = rows
        if self._form.text.comment or set(map(len, rows)) != {width}:
            kept, numbers = self._whole(rows, first, 1 + max(places.values()), width)
        if self._sensor is not None:
            own = [self._is_own(row, places) for row in kept]
            kept = list(compress(kept, own))
            numbers = list(compress(numbers, own))
        self._damage.lines += len(kept)
        cells = {name: tuple(map(itemgetter(at), kept)) for name, at in places.items()}
        good = np.ones(len(kept), np.bool_)
        columns = [self._numbers(cells[name], name, numbers, good) for name in self._columns]
        values = np.reshape(columns, (len(columns), len(kept))).T
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
            times = np.arange(self._rows, self._rows + len(kept)) / self._hertz
        others = {}
        if self._rows < LOOKED_AT:
            others = {
                name: list(compress([row[at] if at < len(row) else "" for row in kept], good))
                for name, at in self._others.items()
            }
        self._rows += len(kept)
        rest = {name: list(compress(cells[name], good)) for name in self._words}
        return Rows(times[good], values[good], rest, others)

    def _without_torn(self, rows: Sequence[list[str]], first: int) -> list[list[str]]:
        """Return the lines, blank where a quote that is not closed took them for one value."""
        kept: list[list[str]] = []
        for row in rows:
            lines = 1 + sum(cell.count("\n") for cell in row)
            if lines == 1:
                kept.append(row)
                continue
            place = f"{self._member.where}:{first + len(kept)}"
            self._damage.lines += lines
            self._damage.add(place, f"a quoted value goes over {lines} lines", lines)
            kept += [[]] * lines
        return kept

    def _whole(
        self, rows: Sequence[list[str]], first: int, least: int, width: int
    ) -> tuple[list[list[str]], list[int]]:
        """Return the lines that are no comments and have all values, and their numbers."""
        comment = self._form.text.comment
        kept = []
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
            kept.append(row)
            numbers.append(line)
        return kept, numbers

    def _is_own(self, row: Sequence[str], places: dict[str, int]) -> bool:
        """Whether a line has values of the sensor."""
        form = self._form.text
        if form.sensor is not None:
            return row[places[form.sensor]].strip() == self._sensor
        own = (row[places[name]].strip() for name in self._columns)
        return not form.in_turn or any(cell not in self._form.missing for cell in own)

    def _times(
        self, cells: Sequence[str], name: str, lines: Sequence[int], good: NDArray[np.bool_]
    ) -> Numbers:
        form = self._form.time
        if form.unit != "iso" and form.pattern is None:
            found = self._numbers(cells, name, lines, good)
            missing = np.isnan(found) & good
            self._damage.missing += int(missing.sum())
            good &= ~missing
            return found / SECOND[form.unit]
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
            found = np.fromiter(map(float, cells), np.float64, len(cells))
        except ValueError:
            found = np.full(len(cells), np.nan)
        odd = ~(np.abs(found) < self._limit)
        if "_" in "".join(cells):
            odd[:] = True
        for row in np.flatnonzero(odd).tolist():
            cell = cells[row].strip()
            found[row] = number(cell)
            if not abs(found[row]) < self._limit:
                found[row] = np.nan
                if cell not in self._form.missing:
                    self._bad(lines[row], name, expected, written[row].strip(), good, row)
        return found

    def _bad(
        self,
        line: int,
        name: str,
        expected: str,
        cell: str,
        good: NDArray[np.bool_],
        row: int,
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
"""How many make one."""
