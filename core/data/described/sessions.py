"""The readings of all recordings, by person and session, become samples, and where windows begin.

Each recording is in the units that its format says, or is refused, before windows are cut. A window
is of one session, and of one label or of one that most of its samples have.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from core.data.arrays import Labels, Numbers, Places, Singles
from core.data.described.description import UNITS, RecordingFormat
from core.data.described.intervals import Intervals
from core.data.described.members import Sheaf
from core.data.described.series import (
    NO_LABEL,
    RecordedSeries,
    Series,
    Spool,
    Stretch,
    WindowChannels,
    signals_of,
)
from core.data.described.session_rows import places_by, rows_of
from core.data.described.text_bytes import Damage
from core.data.described.text_rows import Rows
from core.data.intake import SPARSE, rate_of
from core.data.recordings import Cutting, Report, refuse_alike, refuse_doubtful
from core.data.signals import SIZE_PROBLEMS
from core.data.windows import Implausible, Pair, UnitsLook, as_sentence
from core.ground.errors import DataError

BLOCK = 128
"""Readings over which an acceleration must have a direction, as it has over a window."""


class Judge:
    """Takes readings in the units of windows, and says which sensors cannot be what is said."""

    def __init__(self, form: RecordingFormat) -> None:
        self._form = form
        self._largest = form.largest()
        self._look = UnitsLook(signals_of(form))

    def add(self, recording: str, values: Numbers) -> None:
        """Add the next readings of a recording, (n, channels).

        Values that no sensor has are left out, as windows leave them out.
        """
        values = values[(np.abs(values) <= self._largest).all(axis=1)]
        for start in range(0, len(values), BLOCK):
            self._look.take(recording, values[np.newaxis, start : start + BLOCK])

    def problems(self) -> Iterator[str]:
        """Yield one line for each sensor that looks wrong."""
        return (line for line, _ in self._wrong())

    def refuse(self, path: Path) -> None:
        """Raises DataError for the first sensor that looks wrong."""
        for line, give in self._wrong():
            raise DataError(
                f"{path}: {as_sentence(line)} Give {give}: correct `unit` or `gravity`, or convert"
                " or leave out what is otherwise"
            )

    def _wrong(self) -> Iterator[tuple[str, str]]:
        """Yield what is wrong of each sensor, and what to give instead."""
        problems: dict[str, list[Implausible]] = defaultdict(list)
        for problem in self._look.problems():
            problems[problem.name].append(problem)
        for first, *other_problems in problems.values():
            also = f" (and {len(other_problems)} other recordings)" if other_problems else ""
            yield f"{self._in_words(first)}{also}", first.give

    def _in_words(self, problem: Implausible) -> str:
        """Return what is wrong, and which other units would make a mean length plausible."""
        message = f"{problem.name}: {problem.recording}: {problem.wrong}"
        kinds = {sensor.name: sensor.kind for sensor in signals_of(self._form).judged}
        if problem.name not in kinds or not problem.size:
            return message
        problem_of = SIZE_PROBLEMS[kinds[problem.name]]
        if not problem_of(problem.size):
            return message
        [channel] = [
            candidate for candidate in self._form.in_windows if candidate.name == problem.name
        ]
        unit, factor = UNITS[channel.unit]
        likely = []
        for name, (other_unit, other_factor) in UNITS.items():
            size = problem.size / factor * other_factor
            if other_unit == unit and name != channel.unit and not problem_of(size):
                likely.append(f"{name} ({size:.3g} {unit})")
        plausible = " or ".join(likely) or "no other unit"
        return f"{message} The format says {channel.unit}; plausible: {plausible}"


MOST_SESSIONS = 100_000
MOST_LABELS = 10_000
MOST_NAMED = 5

Key = tuple[str, str, str]


def parts_of(form: RecordingFormat, sheaf: Sheaf, rows: Rows) -> Iterator[tuple[Key, str, Places]]:
    """Yield person, session and file of readings, their word and places, as columns or path say."""
    columns: list[Iterable[str]] = [
        rows.text_columns[column] if column in rows.text_columns else repeat(word, len(rows.values))
        for column, word in (
            (form.person.column, sheaf.path_fields.get("person", form.person.name or "")),
            (
                form.session.column,
                sheaf.path_fields.get("session", form.session.name or sheaf.name),
            ),
            (form.label.column, sheaf.path_fields.get("label", "")),
        )
    ]
    for spelled, places in places_by(zip(*columns, strict=True)).items():
        person, session, word = (name.strip() for name in spelled)
        file = "" if form.session.column else sheaf.name
        yield (person, session, file), word, places


class Sessions:
    """What was read so far."""

    def __init__(self, path: Path, form: RecordingFormat, window_channels: WindowChannels) -> None:
        self._window_channels = window_channels
        self.damage = Damage()
        self._mixing = form.mixing
        self._intervals = None if form.label.intervals is None else Intervals(path, form)
        self._path = path
        self._form = form
        self.judge = Judge(form)
        self._series: dict[Key, Series] = {}
        self._classes: dict[str, int] = {}
        self._spool = Spool()
        self._unlabelled = 0
        self._without: list[str] = []
        """Recordings of which no reading has a label."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes by their numbers in `stretches`."""
        names = [word for word in self._form.label.words.values() if word is not None]
        if names:
            return tuple(word for word in dict.fromkeys(names) if word in self._classes)
        return tuple(sorted(self._classes))

    def read(self, recordings: Sequence[Sheaf], report: Report) -> None:
        """Read these recordings; bytes are reported. Raises DataError."""
        total = sum(sheaf.size for sheaf in recordings)
        before = 0
        for sheaf in recordings:
            labelled = 0
            for rows in rows_of(sheaf, self._form, self.damage):
                if len(rows.values):
                    labelled += self._add(sheaf, rows)
                report("reading", before + min(self.damage.bytes_done, sheaf.size), total)
            before += sheaf.size
            report("reading", before, total)
            if not labelled:
                self._without.append(sheaf.name)
        if self._intervals is not None:
            self._intervals.refuse_elsewhere(self._path, self.damage.clocks)
        people = {person for person, _, _ in self._series}
        for kind, names in (("people", people), ("labels", set(self._classes))):
            refuse_alike(self._path, kind, names)
        if not self._form.label.words:
            refuse_doubtful(self._path, self._classes.keys(), people)

    def stretches(self) -> Iterator[tuple[Pair, Stretch]]:
        """Yield what the sessions became, by person and session, or as they begin in the files.

        Raises DataError.
        """
        order = np.array([self.labels.index(name) for name in self._classes] + [NO_LABEL], np.int16)
        for key in self._series if self._form.as_recorded else sorted(self._series):
            person, session, _ = key
            pair = Pair(person, session=f"{person}/{session}")
            if self._form.as_recorded:
                pair = Pair(person, device=session)
            for stretch in self._series[key].end():
                yield pair, replace(stretch, labels=order[stretch.labels])

    def note(self, sparse: int) -> str:
        """Return how much was read, and what was left out."""
        faults = Counter[str]()
        for series in self._series.values():
            faults += series.faults
        faults["missing"] += self.damage.missing
        faults["bad lines"] += self.damage.bad
        faults["without all sensors"] += self.damage.apart
        faults["without a label"] += self._unlabelled
        faults["sparse windows"] += sparse
        left_out = ", ".join(f"{count:,} {kind}" for kind, count in sorted(faults.items()) if count)
        readings = sum(series.readings for series in self._series.values())
        notes = [f"{readings:,} readings", left_out]
        if self._without:
            named = ", ".join(self._without[:MOST_NAMED])
            notes.append(f"{len(self._without)} recordings without a labelled reading: {named}")
        if self._intervals is not None:
            notes.append(self._intervals.note())
        return "; ".join(filter(None, notes))

    def _add(self, sheaf: Sheaf, rows: Rows) -> int:
        """Take readings, and return how many have a label."""
        values = rows.values if self._form.as_recorded else rows.values @ self._mixing
        labels = np.full(len(values), NO_LABEL, np.int16)
        sessions: dict[Key, list[Places]] = defaultdict(list)
        for key, word, places in parts_of(self._form, sheaf, rows):
            self._refuse_nameless(sheaf, key)
            sessions[key].append(places)
            labels[places] = self._class(sheaf, word)
        for key, place_arrays in sessions.items():
            places = np.sort(np.concatenate(place_arrays))
            times = rows.times[places]
            if key not in self._series:
                self._series[key] = self._new(sheaf, times)
            self.judge.add(" ".join(filter(None, key[:2])), values[places])
            if self._intervals is not None:
                labels[places] = self._within(sheaf, key, times)
            self._series[key].push(times, values[places], labels[places])
        labelled = int(np.count_nonzero(labels != NO_LABEL))
        self._unlabelled += len(values) - labelled
        return labelled

    def _within(self, sheaf: Sheaf, key: Key, times: Numbers) -> Labels:
        """Return the numbers of the classes that intervals say."""
        assert self._intervals is not None
        label_words = self._intervals.words(sheaf, key[0], key[1], times)
        numbers = {
            word: self._class(sheaf, word) if word else NO_LABEL for word in set(label_words)
        }
        return np.array([numbers[word] for word in label_words], np.int16)

    def _new(self, sheaf: Sheaf, times: Numbers) -> Series:
        where = f"{self._path}: {sheaf.name}"
        if self._window_channels.signals.sampling_hz is None and not self._form.as_recorded:
            rate = rate_of(times)
            rate_hint = f", which have about {rate:.4g}" if rate else ""
            raise DataError(
                f"{where}: nothing says the rate of windows of these recordings{rate_hint}: set"
                " jobs.train.data.sampling_hz"
            )
        kind = RecordedSeries if self._form.as_recorded else Series
        return kind(where, self._form, self._window_channels, self._spool)

    def _refuse_nameless(self, sheaf: Sheaf, key: Key) -> None:
        """Raises DataError for readings without a name, and for too many sessions."""
        person, session, _ = key
        if not person or person in self._form.missing:
            raise DataError(
                f"{self._path}: {sheaf.name}: expected a person's name, got {person!r:.40};"
                " correct or remove the readings"
            )
        if self._form.as_recorded and not session:
            raise DataError(
                f"{self._path}: {sheaf.name}: expected a device's name, got nothing; correct or"
                " remove the readings"
            )
        if len(self._series) > MOST_SESSIONS:
            raise DataError(f"{self._path}: more than {MOST_SESSIONS} sessions; correct `session`")

    def _class(self, sheaf: Sheaf, word: str) -> int:
        """Return the number of a class. Raises DataError for a word that the format lacks."""
        name = self._form.class_of(word)
        if name is None:
            raise DataError(
                f"{self._path}: {sheaf.name}: expected a label of"
                f" {', '.join(self._form.label.words)}, got {word!r:.60}; add it to label.words"
            )
        if not name:
            return NO_LABEL
        number = self._classes.setdefault(name, len(self._classes))
        if number >= MOST_LABELS:
            raise DataError(
                f"{self._path}: more than {MOST_LABELS} labels, such as {name!r:.40}; the column of"
                " labels is another one"
            )
        return number


WINDOWS_AT_ONCE = 1024
"""Windows that are gathered at a time."""

Starts = NDArray[np.intp]


@dataclass(frozen=True)
class _Cut:
    pair: Pair
    samples: Callable[[], Singles]
    pieces: list[tuple[int, Starts]]
    """Activities and where their windows begin."""


class Cuts:
    """Where windows begin, and how many there are by person, session and activity."""

    def __init__(self, stretches: Iterable[tuple[Pair, Stretch]], cutting: Cutting) -> None:
        self.counts: dict[tuple[Pair, int], int] = {}
        self.longest = 0
        """Samples of the longest stretch of one label."""
        self.sparse = 0
        """Windows that were left out because their readings are too far apart."""
        self._steps = cutting.window_steps
        self._stride = cutting.window_stride
        self._share = cutting.label_share
        self._cuts: list[_Cut] = []
        for pair, stretch in stretches:
            if self._share >= 1.0:
                pieces = self._pure(stretch)
            else:
                pieces = self._most(stretch)
            self._add(pair, stretch, pieces)

    def windows(self) -> Iterator[tuple[Pair, int, Singles]]:
        """Yield windows, (n, window_steps, channels), with their pair and activity."""
        for cut in self._cuts:
            views = sliding_window_view(cut.samples(), self._steps, axis=0)
            for activity, starts in cut.pieces:
                for begin in range(0, len(starts), WINDOWS_AT_ONCE):
                    windows = views[starts[begin : begin + WINDOWS_AT_ONCE]]
                    yield cut.pair, activity, windows.transpose(0, 2, 1)

    def _add(self, pair: Pair, stretch: Stretch, pieces: Iterable[tuple[int, Starts]]) -> None:
        total = np.concatenate([[0.0], np.cumsum(stretch.wide, dtype=np.float64)])
        dense_pieces = []
        for activity, starts in pieces:
            mean = (total[starts + self._steps] - total[starts]) / self._steps
            dense = starts[mean <= SPARSE]
            self.sparse += len(starts) - len(dense)
            if len(dense):
                key = pair, activity
                self.counts[key] = self.counts.get(key, 0) + len(dense)
                dense_pieces.append((activity, dense))
        if dense_pieces:
            self._cuts.append(_Cut(pair, stretch.samples, dense_pieces))

    def _pure(self, stretch: Stretch) -> Iterator[tuple[int, Starts]]:
        """Yield the starts within each run of one label."""
        ends = [*(np.flatnonzero(np.diff(stretch.labels)) + 1).tolist(), len(stretch.labels)]
        begin = 0
        for end in ends:
            activity = int(stretch.labels[begin])
            if activity != NO_LABEL:
                self.longest = max(self.longest, end - begin)
                yield activity, np.arange(begin, end - self._steps + 1, self._stride)
            begin = end

    def _most(self, stretch: Stretch) -> Iterator[tuple[int, Starts]]:
        """Yield the starts of windows in which a label has its share."""
        self.longest = max(self.longest, len(stretch.labels))
        starts = np.arange(0, len(stretch.labels) - self._steps + 1, self._stride)
        for activity in np.unique(stretch.labels):
            if activity != NO_LABEL:
                total = np.concatenate([[0], np.cumsum(stretch.labels == activity)])
                share = (total[starts + self._steps] - total[starts]) / self._steps
                yield int(activity), starts[share >= self._share]
