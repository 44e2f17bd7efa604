"""What recordings of a format hold before windows are cut: readings, rates, pauses, who and what.

Only so much is read as a person waits for, and it says whether that was all. What looks wrong has
its likely cause, and the line of a file that an error names has its neighbours.
"""

import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from core.data.arrays import Numbers, Places
from core.data.described.description import RecordingFormat
from core.data.described.intervals import Intervals
from core.data.described.members import Member, PathPattern, Sheaf, members_of, sheaves
from core.data.described.session_rows import rows_of
from core.data.described.sessions import Judge, parts_of
from core.data.described.text_bytes import Damage
from core.data.described.text_rows import Rows
from core.data.intake import SPARSE, rate_of
from core.data.show import ChannelFigures, Facts, session_name
from core.ground.errors import DataError
from core.ground.plausible import times_problem

OTHER_RATE = 1.25
"""A rate that differs by this factor from the windows' is said."""


def rate_looks(form: RecordingFormat, sessions: Sequence[Facts]) -> Iterator[tuple[bool, str]]:
    """Yield what the times of sessions have wrong, and what is asked of their rate.

    Of the sessions that have the same wrong the first is named; the bool says whether it is wrong.
    """
    rates = [session["hertz"] for session in sessions if session["hertz"]]
    if form.time.hertz is None and rates and not form.as_recorded:
        yield (
            False,
            f"the rate of windows: readings come {np.median(rates):.4g} a second; give --set"
            " jobs.train.data.sampling_hz=N",
        )
    sessions_by_line: dict[tuple[bool, str], list[str]] = defaultdict(list)
    for session in sessions:
        is_wrong, key, line = _rate_look(form.time.hertz, session)
        if line:
            sessions_by_line[is_wrong, key].append(f"{key}: {session_name(session)}: {line}")
    for (is_wrong, _), lines in sessions_by_line.items():
        if len(lines) > 1:
            also = f" (and {len(lines) - 1} other sessions)"
        else:
            also = ""
        yield is_wrong, f"{lines[0]}{also}"


def _rate_look(windows: float | None, session: Facts) -> tuple[bool, str, str]:
    """Return whether times are wrong, the key of the format that says them, and the words."""
    hertz = session["hertz"]
    if session["readings"] > 2 and 2 * session["unordered"] > session["readings"]:
        problem = "most readings have the time of the one before or an older one"
        return True, "time.column", problem
    if not hertz:
        return True, "", ""
    problem = times_problem(1.0 / hertz) or ""
    if problem or windows is None:
        return True, "time.unit", problem
    measured = f"about {hertz:.3g} readings a second"
    if hertz < windows / SPARSE:
        remedy = f"too few for windows of {windows:g}: set jobs.train.data.sampling_hz"
        return True, "time.hertz", f"{measured}, {remedy}"
    if 1 / OTHER_RATE <= hertz / windows <= OTHER_RATE:
        return True, "", ""
    return False, "time.hertz", f"{measured}, which become {windows:g}"


MOST_READINGS = 4_000_000
MOST_SECONDS = 10.0
MOST_SESSIONS = 64
MOST_LABELS = 64
MOST_PROBLEMS = 12
EXCERPT_SECONDS = 4.0
MOST_IN_EXCERPT = 800
RATE_PARTS = 64

Place = tuple[str, str, str]
"""Person, session and file."""


def look_at_recordings(
    source: Path,
    form: RecordingFormat,
    *,
    is_labelled: bool = True,
    members: Sequence[Member] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Facts:
    """Read recordings, or the first of them, and say what they hold and what looks wrong.

    Without `is_labelled` who and what are not asked for. Raises DataError where no file fits.
    """
    recordings = sheaves(source, form, unlabelled=not is_labelled, members=members)
    tally = _Tally(source, form, is_labelled)
    if form.hints and form.label.intervals is None:
        names = [member.name for member in members or members_of(source)]
        tally.hints = [
            hint
            for pattern, hint in form.hints.items()
            if any(map(PathPattern(pattern).fits, names))
        ]
    ends = clock() + MOST_SECONDS
    problems = []
    is_whole = True
    for number, sheaf in enumerate(recordings):
        if number and (tally.readings >= MOST_READINGS or clock() > ends):
            is_whole = False
            break
        try:
            for rows in rows_of(sheaf, form, tally.damage, unlabelled=not is_labelled):
                tally.add(sheaf, rows)
                if tally.readings >= MOST_READINGS or clock() > ends:
                    is_whole = False
                    break
        except DataError as problem:
            problems.append(str(problem))
    return tally.summary(len(recordings), is_whole, problems)


@dataclass
class _Session:
    times: list[Numbers] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class _Tally:
    """What was read so far."""

    def __init__(self, source: Path, form: RecordingFormat, is_labelled: bool) -> None:
        self.readings = 0
        self.damage = Damage()
        self.hints: Sequence[str] = ()
        self._form = form
        self._is_labelled = is_labelled
        self._intervals = None
        if is_labelled and form.label.intervals is not None:
            self._intervals = Intervals(source, form)
        self._mixing = form.mixing
        self._figures = ChannelFigures(len(form.channel_names))
        self._sessions: dict[Place, _Session] = {}
        self._excerpts: dict[str, tuple[Place, float, list[Numbers]]] = {}
        """Excerpt of each class: the first place, when that began, and rows of time and values."""
        self._unknown: dict[str, int] = defaultdict(int)
        self._judge = Judge(form)

    def add(self, sheaf: Sheaf, rows: Rows) -> None:
        """Add the next readings of a recording."""
        if not len(rows.values):
            return
        values = rows.values @ self._mixing
        self.readings += len(values)
        self._figures.add(values)
        for place, word, places in parts_of(self._form, sheaf, rows):
            session_readings = self._sessions.setdefault(place, _Session())
            times = rows.times[places]
            session_readings.times.append(times)
            self._judge.add(" ".join(filter(None, place[:2])), values[places])
            if not self._is_labelled:
                self._keep("", place, times, values[places])
                continue
            for label, part in self._labelled(sheaf, place, word, times):
                session_readings.labels[label] += len(part)
                self._keep(label, place, times[part], values[places][part])

    def summary(self, files: int, is_whole: bool, problems: Sequence[str]) -> Facts:
        """Return what was found, as plain values."""
        form = self._form
        sessions, labels = self._sessions_and_labels()
        channels = self._figures.rows(form.channel_names, form.units)
        rates = list(rate_looks(form, sessions))
        wrong = [*problems[:MOST_PROBLEMS], *(line for is_wrong, line in rates if is_wrong)]
        wrong += self._judge.problems()
        share = self.damage.bad / max(1, self.damage.lines)
        if share > form.bad_lines:
            wrong.append(f"{self.damage.first}: {share:.2%} of the lines are no readings")
        counts = {"missing": self.damage.missing, "bad lines": self.damage.bad}
        return {
            "title": form.title,
            "channels": channels,
            "files": files,
            "readings": self.readings,
            "is_whole": is_whole,
            "sessions": sessions[:MOST_SESSIONS],
            "sessions_left_out": max(0, len(sessions) - MOST_SESSIONS),
            "labels": labels,
            "excerpts": list(self._drawn()),
            "left_out": ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count),
            "wrong": wrong,
            "asked": [
                *(line for is_wrong, line in rates if not is_wrong),
                *self._asked(channels),
            ],
        }

    def _asked(self, channels: Sequence[Facts]) -> Iterator[str]:
        """Yield what only a person knows, each with the key that says it."""
        yield from self.hints
        still = [
            f"{channel['name']} ({channel['least']:g})"
            for channel in channels
            if channel["least"] == channel["most"]
        ]
        if still:
            yield f"{', '.join(still)}: one value alone; did the sensor give any?"
        if not self._is_labelled:
            yield f"who, and what was done: name a folder with {' or '.join(self._form.files)}"
        for word, count in list(self._unknown.items())[:MOST_PROBLEMS]:
            yield f"what {word!r:.60} means, the label of {count:,} readings: label.words"

    def _labelled(
        self, sheaf: Sheaf, place: Place, word: str, times: Numbers
    ) -> Iterator[tuple[str, Places]]:
        """Yield each class among readings of one word, with their places."""
        label_words = [word] * len(times)
        if self._intervals is not None:
            label_words = self._intervals.words(sheaf, place[0], place[1], times)
        word_array = np.array(label_words)
        for label_word in dict.fromkeys(label_words):
            places = np.flatnonzero(word_array == label_word)
            label = self._form.class_of(label_word)
            if label is None:
                self._unknown[label_word] += len(places)
                label = label_word
            if label:
                yield label, places

    def _keep(self, label: str, place: Place, times: Numbers, values: Numbers) -> None:
        """Keep the first seconds of a class, of the session that it was seen in first."""
        if label not in self._excerpts:
            if len(self._excerpts) >= MOST_LABELS:
                return
            self._excerpts[label] = place, float(times[0]), []
        first, begin, rows = self._excerpts[label]
        near = (times >= begin) & (times < begin + EXCERPT_SECONDS)
        if first == place and sum(map(len, rows)) < MOST_IN_EXCERPT:
            rows.append(np.column_stack([times, values])[near])

    def _session(self, place: Place, session_readings: _Session) -> Facts:
        """Return one session: its readings a second over its time, in some equal parts.

        pauses: how often no reading came for longer than windows bridge; longest_pause in seconds.
        unordered: readings with the time of the one before, or an older one.
        """
        times = np.concatenate(session_readings.times)
        steps = np.diff(times)
        hertz = rate_of(times) or 0.0
        gap = self._form.longest_gap(self._form.time.hertz or hertz or 1.0)
        counts, edges = np.histogram(times, min(RATE_PARTS, max(1, len(times) // 8)))
        width = float(edges[1] - edges[0])
        between = (len(times) - 1) / len(times)
        return {
            "person": place[0],
            "session": place[1] or place[2],
            "readings": len(times),
            "seconds": float(times.max() - times.min()),
            "hertz": hertz,
            "pauses": int((steps > gap).sum()),
            "longest_pause": float(steps.max(initial=0.0)),
            "unordered": int((steps <= 0).sum()),
            "rates": (counts / width * between).tolist() if width > 0 else [],
        }

    def _sessions_and_labels(self) -> tuple[list[Facts], list[Facts]]:
        """Return the sessions, and each class with about how long it took and of how many."""
        sessions = []
        labels: dict[str, Facts] = {}
        people: dict[str, set[str]] = defaultdict(set)
        for place, session_readings in sorted(self._sessions.items()):
            session = self._session(place, session_readings)
            sessions.append(session)
            for label, readings in session_readings.labels.items():
                row = labels.setdefault(label, {"label": label, "readings": 0, "seconds": 0.0})
                row["readings"] += readings
                row["seconds"] += readings / (session["hertz"] or math.inf)
                people[label].add(place[0])
        rows = [{**labels[label], "people": len(people[label])} for label in sorted(labels)]
        return sessions, rows[:MOST_LABELS]

    def _drawn(self) -> Iterator[Facts]:
        """Yield the first seconds of each class, (readings, channels), in the units of windows."""
        for label, (place, begin, blocks) in sorted(self._excerpts.items()):
            rows = np.concatenate(blocks)[:MOST_IN_EXCERPT]
            yield {
                "label": label,
                "whose": " ".join(filter(None, place[:2])),
                "seconds": float(rows[:, 0].max()) - begin,
                "values": rows[:, 1:].tolist(),
            }


AROUND = 2
LONGEST_LINE = 160
AT_ONCE = 2**16
_PLACE = re.compile(r"^(?P<path>.+?):(?P<line>\d{1,9}): ")


def named_lines(error: str) -> Iterator[str]:
    """Yield the lines around `path:line: ...`, the named one marked.

    There are none where the error names no readable line.
    """
    match = _PLACE.match(error)
    if match is None:
        return
    path = Path(match["path"])
    line = int(match["line"])
    if not path.is_file():
        return
    with path.open("rb") as stream:
        lines = islice(iter(lambda: _line_of_file(stream), b""), line + AROUND)
        for number, content in enumerate(lines, start=1):
            if number >= line - AROUND:
                text = content[: LONGEST_LINE + 1].decode("utf-8", "replace").rstrip("\r\n")
                if len(text) > LONGEST_LINE:
                    text = f"{text[:LONGEST_LINE]}..."
                yield f"{'>' if number == line else ' '} {number}: {text}"


def _line_of_file(stream: IO[bytes]) -> bytes:
    """Return the beginning of the next line, and pass its rest over.

    A line may be as long as the file.
    """
    begin = rest = stream.readline(AT_ONCE)
    while rest and not rest.endswith(b"\n"):
        rest = stream.readline(AT_ONCE)
    return begin
