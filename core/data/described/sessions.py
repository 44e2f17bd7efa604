"""The readings of all recordings, sorted by person and session, as they become samples."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.data.described.channels import MadeChannels
from core.data.described.description import RecordingFormat
from core.data.described.intervals import Intervals
from core.data.described.judge import Judge
from core.data.described.members import Sheaf
from core.data.described.series import NO_LABEL, RecordedSeries, Series, Stretch
from core.data.described.session_rows import places_by, rows_of
from core.data.described.spool import Spool
from core.data.described.text_rows import Damage, Rows
from core.data.intake import rate_of
from core.data.recordings import Report, refuse_alike, refuse_doubtful
from core.data.windows import Pair
from core.ground.errors import DataError

MOST_SESSIONS = 100_000
MOST_LABELS = 10_000
MOST_NAMED = 5

Key = tuple[str, str, str]


def places_of(form: RecordingFormat, sheaf: Sheaf, rows: Rows) -> Iterator[tuple[str, ...]]:
    """Yield person, session and label of each reading, as the columns or the path say them."""
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
    return zip(*columns, strict=True)


class Sessions:
    """What was read so far."""

    def __init__(self, path: Path, form: RecordingFormat, window_channels: MadeChannels) -> None:
        self.hertz = window_channels.signals.sampling_hz
        """The windows' rate; None where it is not said."""
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

    def take(self, recordings: Sequence[Sheaf], report: Report) -> None:
        """Read these recordings; bytes are reported. Raises DataError."""
        total = sum(sheaf.size for sheaf in recordings)
        before = 0
        for sheaf in recordings:
            labelled = 0
            for rows in rows_of(sheaf, self._form, self.damage):
                if len(rows.values):
                    labelled += self._take(sheaf, rows)
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
        faults = Counter(
            {
                "missing": self.damage.missing,
                "bad lines": self.damage.bad,
                "without all sensors": self.damage.apart,
                "without a label": self._unlabelled,
                "sparse windows": sparse,
            }
        )
        for series in self._series.values():
            faults.update(series.faults)
        left_out = ", ".join(f"{count:,} {kind}" for kind, count in sorted(faults.items()) if count)
        readings = sum(series.readings for series in self._series.values())
        notes = [f"{readings:,} readings", left_out]
        if self._without:
            named = ", ".join(self._without[:MOST_NAMED])
            notes.append(f"{len(self._without)} recordings without a labelled reading: {named}")
        if self._intervals is not None:
            notes.append(self._intervals.note())
        return "; ".join(filter(None, notes))

    def _take(self, sheaf: Sheaf, rows: Rows) -> int:
        """Take readings, and return how many have a label."""
        values = rows.values if self._form.as_recorded else rows.values @ self._mixing
        labels = np.full(len(values), NO_LABEL, np.int16)
        sessions: dict[Key, list[NDArray[np.intp]]] = defaultdict(list)
        for place, places in places_by(places_of(self._form, sheaf, rows)).items():
            person, session, word = (name.strip() for name in place)
            sessions[self._key(sheaf, person, session)].append(places)
            labels[places] = self._class(sheaf, word)
        for key, place_arrays in sessions.items():
            places = np.sort(np.concatenate(place_arrays))
            times = rows.times[places]
            if key not in self._series:
                self._series[key] = self._new(sheaf, times)
            self.judge.take(" ".join(filter(None, key[:2])), values[places])
            if self._intervals is not None:
                labels[places] = self._within(sheaf, key, times)
            self._series[key].push(times, values[places], labels[places])
        labelled = int(np.count_nonzero(labels != NO_LABEL))
        self._unlabelled += len(values) - labelled
        return labelled

    def _within(self, sheaf: Sheaf, key: Key, times: NDArray[np.float64]) -> NDArray[np.int16]:
        """Return the numbers of the classes that intervals say."""
        assert self._intervals is not None
        label_words = self._intervals.words(sheaf, key[0], key[1], times)
        numbers = {
            word: self._class(sheaf, word) if word else NO_LABEL for word in set(label_words)
        }
        return np.array([numbers[word] for word in label_words], np.int16)

    def _new(self, sheaf: Sheaf, times: NDArray[np.float64]) -> Series:
        where = f"{self._path}: {sheaf.name}"
        if self.hertz is None and not self._form.as_recorded:
            rate = rate_of(times)
            rate_hint = f", which have about {rate:.4g}" if rate else ""
            raise DataError(
                f"{where}: nothing says the rate of windows of these recordings{rate_hint}: set"
                " jobs.train.data.sampling_hz"
            )
        hertz = self.hertz or 1.0
        return (RecordedSeries if self._form.as_recorded else Series)(
            where,
            hertz,
            self._form.longest_gap(hertz),
            self._form.largest(),
            self._window_channels,
            self._spool,
            self._form.time.unit.replace("iso", "s"),
        )

    def _key(self, sheaf: Sheaf, person: str, session: str) -> Key:
        """Return by what readings find their series. Raises DataError for one without a name."""
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
        return person, session, "" if self._form.session.column else sheaf.name

    def _class(self, sheaf: Sheaf, word: str) -> int:
        """Return the number of a class. Raises DataError for a word that the format lacks."""
        classes = self._form.label.words
        if classes and word not in classes and word not in self._form.missing:
            raise DataError(
                f"{self._path}: {sheaf.name}: expected a label of {', '.join(classes)}, got"
                f" {word!r:.60}; add it to label.words"
            )
        name = classes.get(word, word)
        if not name or word in self._form.missing:
            return NO_LABEL
        number = self._classes.setdefault(name, len(self._classes))
        if number >= MOST_LABELS:
            raise DataError(
                f"{self._path}: more than {MOST_LABELS} labels, such as {name!r:.40}; the column of"
                " labels is another one"
            )
        return number
