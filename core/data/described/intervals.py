"""Labels as a file of intervals says them: begin, end and label, with person and session or not."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import attrgetter
from pathlib import Path, PurePosixPath

import numpy as np

from core.data.arrays import AnyArray, Flags, Numbers
from core.data.described.description import RecordingFormat
from core.data.described.members import Member, PathPattern, Sheaf, members_of
from core.data.described.moments import TimeForm
from core.data.described.text_bytes import Damage
from core.data.described.text_rows import LOCAL, Rows, TextRows, whole
from core.ground.errors import DataError

MOST_NAMED = 5
EPOCH = 1e8
"""Seconds that are of a date, not of a device's own clock."""
OVERLAP = 1.0
"""Seconds that two recordings may have in common."""
LEAST_HERTZ = 20.0
"""Readings a second where a format does not say them."""
LITTLE_MORE = 1.001
WITHOUT = 0.2
"""The share of intervals that may have no reading."""

Owner = tuple[str, str, str]
"""Folder, person and session; what is not said is empty."""


@dataclass
class _Span:
    """A recording: its first and last time, and the first and last call of `Intervals.words`."""

    recording: Owner
    first: float
    last: float
    begun: int
    ended: int


@dataclass
class _Labels:
    """Intervals in the order of their begins: seconds, word, and whether it is used, (n,) each."""

    begins: Numbers
    ends: Numbers
    label_words: AnyArray
    used: Flags
    spans: dict[Owner, _Span] = field(default_factory=dict)

    @property
    def recorded(self) -> tuple[float, float]:
        """The times of the first and the last reading of all recordings."""
        spans = self.spans.values()
        return min(span.first for span in spans), max(span.last for span in spans)


class Intervals:
    """All intervals of the recordings in a folder or archive."""

    def __init__(self, source: Path, form: RecordingFormat) -> None:
        """Raises DataError where there is no such file, or one cannot be read."""
        assert form.label.intervals is not None
        self._form = form
        self._how = form.label.intervals
        pattern = PathPattern(self._how.file)
        self._clocks = set[str]()
        rows_by_owner: dict[Owner, list[tuple[float, float, str]]] = defaultdict(list)
        for member in members_of(source):
            fits = pattern.fits(member.name)
            if fits is not None:
                self._read(member, fits[1], rows_by_owner)
        if not rows_by_owner:
            raise DataError(
                f"{source}: expected intervals in a file {self._how.file}, found none; restore it,"
                " or correct label.intervals"
            )
        is_of_rows = self._how.unit == "rows"
        step = 0.0 if is_of_rows else 1 / (form.time.hertz or LEAST_HERTZ)
        self._labels = {owner: _sorted(source, rows, step) for owner, rows in rows_by_owner.items()}
        self._calls = 0
        self._missed: Owner = ("", "", "")

    def words(self, sheaf: Sheaf, person: str, session: str, times: Numbers) -> list[str]:
        """Return the word of each of these times of a session, empty without one."""
        path = PurePosixPath(sheaf.name)
        names = (session, path.name, path.stem)
        keys = [self._key((str(path.parent), person, name)) for name in names]
        labels = next((self._labels[key] for key in keys if key in self._labels), None)
        if labels is None:
            self._missed = keys[0]
            if self._how.unit == "rows":
                raise DataError(
                    f"{next(iter(sheaf.files.values())).where}: no row of {self._how.file} labels"
                    " it; the labels were cut short, restore them (or remove the recording)"
                )
            return [""] * len(times)
        places = np.searchsorted(labels.begins, times, side="right") - 1
        is_within = (places >= 0) & (times <= labels.ends[places])
        labels.used[places[is_within]] = True
        self._calls += 1
        recording = sheaf.name, person, session
        new = _Span(recording, np.inf, -np.inf, self._calls, self._calls)
        span = labels.spans.setdefault(recording, new)
        span.first = min(span.first, float(times.min()))
        span.last = max(span.last, float(times.max()))
        span.ended = self._calls
        words_of_times: list[str] = np.where(is_within, labels.label_words[places], "").tolist()
        return words_of_times

    def note(self) -> str:
        """Return which intervals have no reading, in words; empty where all have one."""
        unrecorded = [
            _named(owner) for owner, intervals in self._labels.items() if not intervals.spans
        ]
        without = sum(int((~labels.used).sum()) for labels in self._recorded.values())
        notes = [f"{without} intervals without a reading"] if without else []
        if unrecorded:
            notes.append(f"intervals of no recording: {', '.join(unrecorded[:MOST_NAMED])}")
        return "; ".join(notes)

    @property
    def _recorded(self) -> dict[Owner, _Labels]:
        """The intervals of those of whom there is a recording."""
        return {owner: labels for owner, labels in self._labels.items() if labels.spans}

    def refuse_elsewhere(self, source: Path, clocks: Collection[str]) -> None:
        """Raises DataError where readings and intervals do not belong together.

        `clocks` are those of the readings. Their times are others, or none have a zone, or
        intervals have no reading, or are of several recordings.
        """
        if not self._recorded:
            interval_owner, recording_owner = map(_named, (next(iter(self._labels)), self._missed))
            raise DataError(
                f"{source}: {self._how.file}: no interval is of a recording: they are of"
                f" {interval_owner!r:.60}, recordings are of {recording_owner!r:.60}; correct their"
                " person or session"
            )
        self._refuse_zones(source, clocks)
        for owner, labels in self._recorded.items():
            first, last = labels.recorded
            unused = np.flatnonzero(~labels.used)
            if len(unused) == len(labels.label_words):
                raise DataError(
                    f"{source}: {_named(owner)}: no interval has a reading: they"
                    f" begin from {labels.begins[0]:.12g} to {labels.begins[-1]:.12g} s, and"
                    f" readings lie from {first:.12g} to {last:.12g}; correct label.intervals.unit,"
                    " or give both one clock"
                )
            if len(unused) > max(1.0, WITHOUT * len(labels.label_words)):
                raise DataError(
                    f"{source}: {_named(owner)}: {len(unused)} of {len(labels.used)} intervals"
                    f" have no reading, such as {labels.label_words[unused[0]]!r:.40} from"
                    f" {labels.begins[unused[0]]:.12g} s; readings lie from {first:.12g} to"
                    f" {last:.12g}; correct time.zone or the unit, or remove those of other times"
                )
        if self._how.unit == "rows":
            self._refuse_cut_short(source)
        if not self._how.shared:
            self._refuse_same_times(source)

    def _refuse_zones(self, source: Path, clocks: Collection[str]) -> None:
        """Raises DataError for dates without a zone beside times of the world's clock."""
        begins = min(labels.begins[0] for labels in self._labels.values())
        first = min(labels.recorded[0] for labels in self._recorded.values())
        both = [("readings", set(clocks), first), ("intervals", self._clocks, begins)]
        for (local_kind, local_clocks, _), (zoned_kind, zoned_clocks, begin) in (both, both[::-1]):
            if LOCAL in local_clocks and LOCAL not in zoned_clocks and begin > EPOCH:
                raise DataError(
                    f"{source}: the dates of {local_kind} have no zone, and the times of"
                    f" {zoned_kind} have one; write time.zone, such as Europe/Berlin or +02:00"
                )

    def _refuse_same_times(self, source: Path) -> None:
        """Raises DataError for intervals of two recordings, one after another, of the same times.

        Those in turn are of devices with one clock, and the world has one.
        """
        for owner, labels in self._recorded.items():
            spans = sorted(labels.spans.values(), key=attrgetter("first", "last"))
            latest = spans[0]
            for span in spans[1:]:
                before, after = sorted((latest, span), key=attrgetter("begun"))
                is_at_once = span.first + OVERLAP < latest.last and span.first < EPOCH
                if is_at_once and before.ended < after.begun:
                    if span.recording[0] != latest.recording[0]:
                        at = 0
                    else:
                        at = 2
                    raise DataError(
                        f"{source}: {self._how.file}: the intervals of {_named(owner)} are of two"
                        f" recordings of the same times ({latest.recording[at]},"
                        f" {span.recording[at]}); name the session of both, give them one clock, or"
                        " write label.intervals.shared: true if they were made at once"
                    )
                latest = max(latest, span, key=attrgetter("last"))

    def _refuse_cut_short(self, source: Path) -> None:
        """Raises DataError for intervals of rows that no recording has."""
        rate = self._form.time.hertz
        assert rate is not None
        for owner, labels in self._labels.items():
            last = labels.recorded[1] if labels.spans else -1.0 / rate
            if labels.ends[-1] > last:
                rows, end = (round(moment * rate) + 1 for moment in (last, labels.ends[-1]))
                raise DataError(
                    f"{source}: {self._how.file}: ends at row {end} of a recording of {rows} rows"
                    f" ({_named(owner)}); correct the line or the recording"
                )

    def _key(self, owner: Owner) -> Owner:
        """Return by what a recording finds its intervals: what they say, else their folder."""
        folder, person, session = owner
        says_person = self._how.person is not None or "{person" in self._how.file
        says_session = self._how.session is not None or "{session" in self._how.file
        if says_person or says_session:
            folder = ""
        return (
            folder,
            _plain(person) if says_person else "",
            _plain(session) if says_session else "",
        )

    def _read(
        self,
        member: Member,
        path_fields: Mapping[str, str],
        rows_by_owner: dict[Owner, list[tuple[float, float, str]]],
    ) -> None:
        """Add the intervals of a file. Raises DataError."""
        how = self._how
        text_columns = filter(None, (how.label, how.person, how.session))
        rows = self._column(member, how.begin, list(text_columns))
        ends = np.full(len(rows.times), np.nan)
        if how.end is not None:
            ends = self._column(member, how.end, []).times
        owner_columns = [
            rows.text_columns[column] if column else repeat(path_fields.get(word, ""))
            for column, word in ((how.person, "person"), (how.session, "session"))
        ]
        folder = str(PurePosixPath(member.name).parent)
        for *names, begin, end, word in zip(
            *owner_columns,
            rows.times.tolist(),
            ends.tolist(),
            rows.text_columns[how.label],
            strict=False,
        ):
            person, session = map(str.strip, names)
            rows_by_owner[self._key((folder, person, session))].append((begin, end, word.strip()))

    def _column(self, member: Member, names: tuple[str, ...], text_columns: Sequence[str]) -> Rows:
        """Return the words of columns, with one as seconds. Raises DataError."""
        how = self._how
        time = TimeForm(
            column=names,
            unit="s" if how.unit == "rows" else how.unit,
            pattern=how.pattern,
            zone=self._form.time.zone,
        )
        form = self._form.model_copy(update={"text": how.text, "time": time, "missing": ()})
        damage = Damage(clocks=self._clocks)
        rows = whole(TextRows(member, form, (), text_columns, damage).chunks())
        if damage.bad:
            raise DataError(f"{damage.first}; correct the interval")
        if how.unit == "rows":
            assert self._form.time.hertz is not None
            return replace(rows, times=(rows.times - 1) / self._form.time.hertz)
        return rows


def _sorted(source: Path, rows: list[tuple[float, float, str]], step: float) -> _Labels:
    """Return intervals by their begins; without an end each lasts up to the next.

    Raises DataError for one that ends before it begins, or has more than a `step` in seconds of
    another one. Without steps the last reading belongs to an interval, too.
    """
    ordered = sorted(rows)
    begins, ends = np.array([(begin, end) for begin, end, _ in ordered]).T
    label_words = np.array([word for _, _, word in ordered], object)
    if np.isnan(ends).all():
        ends = np.append(begins[1:], np.inf)
    # A sum of steps has an error in its last place.
    is_within = begins[1:] < ends[:-1] - step * LITTLE_MORE
    is_within |= begins[1:] == (begins if step else ends)[:-1]
    for place in np.flatnonzero((ends < begins) | np.append(False, is_within))[:1].tolist():
        begin = begins[place]
        end = ends[place]
        problem = f"ends before it, at {end:.12g}; correct it"
        if end >= begin:
            problem = (
                f"begins within that of {label_words[place - 1]!r:.40}, which ends at"
                f" {ends[place - 1]:.12g}; correct one of them"
            )
        raise DataError(
            f"{source}: the interval of {label_words[place]!r:.40} from {begin:.12g} s {problem}"
        )
    return _Labels(begins, ends, label_words, np.zeros(len(label_words), np.bool_))


def _named(owner: Owner) -> str:
    return " ".join(filter(None, owner))


def _plain(name: str) -> str:
    """Return a name without the zeros before a number: `01` of a path is `1` of a table."""
    if name.isdecimal():
        return str(int(name))
    return name
