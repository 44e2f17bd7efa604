"""Labels as a file of intervals says them: begin, end and label, with person and session or not."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from core.data.described.description import IntervalForm, RecordingFormat
from core.data.described.members import Member, Sheaf, members_of
from core.data.described.path_pattern import PathPattern
from core.data.described.text_rows import LOCAL, Damage, TextRows
from core.data.described.time_form import TimeForm
from core.errors import DataError

MOST_NAMED = 5
EPOCH = 1e8
"""Seconds that are of a date, not of a device's own clock."""
OVERLAP = 1.0
"""Seconds that two recordings may have in common."""
WITHOUT = 0.2
"""The share of intervals that may have no reading."""

Whose = tuple[str, str, str]
"""Folder, person and session; what is not said is empty."""


@dataclass(frozen=True)
class _Labels:
    """Intervals in the order of their begins: seconds (n,), and a word for each."""

    begins: NDArray[np.float64]
    ends: NDArray[np.float64]
    words: Sequence[str]


class Intervals:
    """All intervals of the recordings in a folder or archive."""

    def __init__(self, source: Path, form: RecordingFormat) -> None:
        """Raises DataError where there is no such file, or one cannot be read."""
        assert form.label.intervals is not None
        self._form = form
        self._how = form.label.intervals
        pattern = PathPattern(self._how.file)
        self._clocks = set[str]()
        found: dict[Whose, list[tuple[float, float, str]]] = defaultdict(list)
        for member in members_of(source):
            fits = pattern.fits(member.name)
            if fits is not None:
                for whose, interval in self._read(member, self._how, fits[1]):
                    found[whose].append(interval)
        if not found:
            raise DataError(
                f"{source}: expected intervals in a file {self._how.file}, found none; restore it,"
                " or correct label.intervals"
            )
        is_of_rows = self._how.unit == "rows"
        self._labels = {whose: _sorted(source, rows, is_of_rows) for whose, rows in found.items()}
        self._seen: dict[Whose, list[float]] = {}
        """By whose the intervals are: first and last time of a reading, and how many are within."""
        self._used = {
            whose: np.zeros(len(one.words), np.bool_) for whose, one in self._labels.items()
        }
        """Which of the intervals have a reading."""
        self._spans: dict[Whose, dict[Whose, list[float]]] = defaultdict(dict)
        """By recording: first and last time, and the first and last call of `words`."""
        self._calls = 0
        self._missed: Whose = ("", "", "")

    def words(
        self, sheaf: Sheaf, person: str, session: str, times: NDArray[np.float64]
    ) -> list[str]:
        """Return the word of each of these times of a session, empty without one."""
        path = PurePosixPath(sheaf.name)
        stem = path.stem if session == sheaf.name else session
        keys = [self._key((str(path.parent), person, one)) for one in (session, path.name, stem)]
        whose = next((key for key in keys if key in self._labels), keys[0])
        labels = self._labels.get(whose)
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
        first, last, within = self._seen.get(whose, (np.inf, -np.inf, 0.0))
        self._seen[whose] = [
            min(first, float(times.min())),
            max(last, float(times.max())),
            within + float(is_within.sum()),
        ]
        self._used[whose][places[is_within]] = True
        self._calls += 1
        recording = sheaf.name, person, session
        span = self._spans[whose].setdefault(recording, [np.inf, -np.inf, self._calls, 0.0])
        span[0] = min(span[0], float(times.min()))
        span[1] = max(span[1], float(times.max()))
        span[3] = self._calls
        return [
            labels.words[place] if is_in else ""
            for place, is_in in zip(places.tolist(), is_within.tolist(), strict=True)
        ]

    def note(self) -> str:
        """Return which intervals have no reading, in words; empty where all have one."""
        unrecorded = [" ".join(filter(None, one)) for one in self._labels if one not in self._seen]
        without = sum(int((~self._used[whose]).sum()) for whose in self._seen)
        parts = [f"{without} intervals without a reading"] if without else []
        if unrecorded:
            parts.append(f"intervals of no recording: {', '.join(unrecorded[:MOST_NAMED])}")
        return "; ".join(parts)

    def refuse_elsewhere(self, source: Path, clocks: Collection[str]) -> None:
        """Raises DataError where readings and intervals do not belong together.

        `clocks` are those of the readings. Their times are others, or none have a zone, or
        intervals have no reading, or are of several recordings.
        """
        if not self._seen:
            pair = next(iter(self._labels)), self._missed
            named, own = (" ".join(filter(None, one)) for one in pair)
            raise DataError(
                f"{source}: {self._how.file}: no interval is of a recording: they are of"
                f" {named!r:.60}, recordings are of {own!r:.60}; correct their person or session"
            )
        self._refuse_zones(source, clocks)
        for whose, (first, last, within) in self._seen.items():
            labels = self._labels[whose]
            if not within:
                raise DataError(
                    f"{source}: {' '.join(filter(None, whose))}: no interval has a reading: they"
                    f" begin from {labels.begins[0]:.12g} to {labels.begins[-1]:.12g} s, and"
                    f" readings lie from {first:.12g} to {last:.12g}; correct label.intervals.unit,"
                    " or give both one clock"
                )
            without = np.flatnonzero(~self._used[whose])
            if len(without) > max(1.0, WITHOUT * len(labels.words)):
                raise DataError(
                    f"{source}: {' '.join(filter(None, whose))}: {len(without)} of"
                    f" {len(labels.words)} intervals have no reading, such as"
                    f" {labels.words[without[0]]!r:.40} from {labels.begins[without[0]]:.12g} s;"
                    f" readings lie from {first:.12g} to {last:.12g}; correct time.zone or the"
                    " unit, or remove those of other times"
                )
        if self._how.unit == "rows":
            self._refuse_cut_short(source)
        if not self._how.shared:
            self._refuse_same_times(source)

    def _refuse_zones(self, source: Path, clocks: Collection[str]) -> None:
        """Raises DataError for dates without a zone beside times of the world's clock."""
        begins = min(labels.begins[0] for labels in self._labels.values())
        first = min(one[0] for one in self._seen.values())
        both = [("readings", set(clocks), first), ("intervals", self._clocks, begins)]
        for (one, own, _), (other, others, begin) in (both, both[::-1]):
            if LOCAL in own and LOCAL not in others and begin > EPOCH:
                raise DataError(
                    f"{source}: the dates of {one} have no zone, and the times of {other} have one;"
                    " write time.zone, such as Europe/Berlin or +02:00"
                )

    def _refuse_same_times(self, source: Path) -> None:
        """Raises DataError for intervals of two recordings, one after another, of the same times.

        Those in turn are of devices with one clock, and the world has one.
        """
        for whose, spans in self._spans.items():
            latest: tuple[Whose, list[float]] | None = None
            for recording, span in sorted(spans.items(), key=itemgetter(1)):
                if latest is not None and span[0] + OVERLAP < latest[1][1] and span[0] < EPOCH:
                    before, after = sorted((latest[1][2:], span[2:]))
                    if before[1] < after[0]:
                        at = 0 if recording[0] != latest[0][0] else 2
                        raise DataError(
                            f"{source}: {self._how.file}: the intervals of"
                            f" {' '.join(filter(None, whose))} are of two recordings of the same"
                            f" times ({latest[0][at]}, {recording[at]}); say the session of both,"
                            " give them one clock, or write label.intervals.shared: true if they"
                            " were made at once"
                        )
                if latest is None or span[1] > latest[1][1]:
                    latest = recording, span

    def _refuse_cut_short(self, source: Path) -> None:
        """Raises DataError for intervals of rows that no recording has."""
        rate = self._form.time.hertz
        assert rate is not None
        for whose, labels in self._labels.items():
            _, last, _ = self._seen.get(whose, (0.0, -1.0 / rate, 0.0))
            if labels.ends[-1] > last:
                rows, end = (round(moment * rate) + 1 for moment in (last, labels.ends[-1]))
                raise DataError(
                    f"{source}: {self._how.file}: ends at row {end} of a recording of {rows} rows"
                    f" ({' '.join(filter(None, whose))}); correct the line or the recording"
                )

    def _key(self, whose: Whose) -> Whose:
        """Return by what a recording finds its intervals: what they say, else their folder."""
        folder, person, session = whose
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
        self, member: Member, how: IntervalForm, said: dict[str, str]
    ) -> list[tuple[Whose, tuple[float, float, str]]]:
        asked = [how.label, *filter(None, (how.person, how.session))]
        begins, words = self._column(member, how.begin, asked)
        ends = np.full(len(begins), np.nan)
        if how.end is not None:
            ends, _ = self._column(member, how.end, [])
        folder = str(PurePosixPath(member.name).parent)
        count = len(begins)
        people = words[how.person] if how.person else [said.get("person", "")] * count
        sessions = words[how.session] if how.session else [said.get("session", "")] * count
        rows = zip(people, sessions, begins.tolist(), ends.tolist(), words[how.label], strict=True)
        return [
            (self._key((folder, person.strip(), session.strip())), (begin, end, word.strip()))
            for person, session, begin, end, word in rows
        ]

    def _column(
        self, member: Member, names: tuple[str, ...], asked: Sequence[str]
    ) -> tuple[NDArray[np.float64], dict[str, list[str]]]:
        """Return a column as seconds, and the words of others. Raises DataError."""
        rate = self._form.time.hertz
        unit = "s" if self._how.unit == "rows" else self._how.unit
        form = self._form.model_copy(
            update={
                "text": self._how.text,
                "time": TimeForm(
                    column=names,
                    unit=unit,
                    pattern=self._how.pattern,
                    zone=self._form.time.zone,
                ),
                "missing": (),
            }
        )
        damage = Damage(clocks=self._clocks)
        chunks = list(TextRows(member, form, (), asked, damage).chunks())
        if damage.bad:
            raise DataError(f"{damage.first}; correct the interval")
        times = np.concatenate([chunk.times for chunk in chunks])
        if self._how.unit == "rows":
            assert rate is not None
            times = (times - 1) / rate
        words = {name: [word for chunk in chunks for word in chunk.words[name]] for name in asked}
        return times, words


def _sorted(source: Path, rows: list[tuple[float, float, str]], is_of_rows: bool) -> _Labels:
    """Return intervals by their begins; without an end each lasts up to the next.

    Raises DataError for one that ends before it begins, or has a part of another. Of rows the last
    one belongs to an interval, too.
    """
    ordered = sorted(rows)
    begins = np.array([begin for begin, _, _ in ordered])
    ends = np.array([end for _, end, _ in ordered])
    words = [word for _, _, word in ordered]
    if np.isnan(ends).all():
        ends = np.append(begins[1:], np.inf)
    for place in range(len(words)):
        said = f"{source}: the interval of {words[place]!r:.40} from {begins[place]:.12g} s"
        if ends[place] < begins[place]:
            raise DataError(f"{said} ends before it, at {ends[place]:.12g}; correct it")
        if not place:
            continue
        is_shared = begins[place] == (ends if is_of_rows else begins)[place - 1]
        if is_shared or begins[place] < ends[place - 1]:
            raise DataError(
                f"{said} begins within that of {words[place - 1]!r:.40}, which ends at"
                f" {ends[place - 1]:.12g}; correct one of them"
            )
    return _Labels(begins, ends, words)


def _plain(name: str) -> str:
    """Return a name without the zeros before a number: `01` of a path is `1` of a table."""
    if name.isdecimal():
        return str(int(name))
    return name
