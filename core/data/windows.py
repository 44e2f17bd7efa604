"""Windows of recordings: whether their units are plausible, and which ones are the test.

The magnitude of what an accelerometer and a gyroscope gave decides, for each recording by itself;
where no recordings are known, for each person: this is the one judge, at every way in. The test is
whole people, devices or sessions, or some windows: the same in every job, whatever its seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.arrays import Flags, Numbers
from core.data.recordings import NO_SUBJECT, Cutting
from core.data.signals import ACCELERATION, KIND_UNITS, SIZE_PROBLEMS, Sensor, Signals
from core.data.split import MOST_SHOWN, HeldOut
from core.ground.errors import DataError
from core.ground.plausible import AXIS_SIZES, direction_problem

ODD_SHARE = 0.02
LEAST_ODD = 2
"""Windows of a recording that are in another unit by themselves, from which on they are refused."""
LONG_WINDOW = 64
"""Steps that no fall lasts."""

Sums = NDArray[np.float64]


@dataclass(frozen=True)
class Implausible:
    """What a recording has wrong: the sensor or channel, its mean size, why, and what to give."""

    recording: str
    name: str
    size: float
    wrong: str
    give: str


class UnitsLook:
    """Takes windows, some at a time, and says which recordings cannot be in g and rad/s.

    Sensors are found as the signals state them, those of the nine by name. Others, and those in
    other units by their own word, are passed: nothing is known of them.
    """

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._places = signals.judged
        self._alone = signals.judged_alone
        self._sums: dict[tuple[str, Sensor | int], Sums] = {}
        """Windows, their sizes, the lengths of their means and the differences of their axes."""
        self._odd: dict[tuple[str, Sensor, str], Sums] = {}
        """Sums of windows that are wrong by themselves, in each way."""

    def take(
        self, recording: str, windows: NDArray[np.generic], *, is_by_window: bool = False
    ) -> None:
        """Look at some windows of a recording too, (n, ..., channels).

        With `is_by_window` those that are wrong by themselves are judged as a part of it too: a
        mean over windows of several recordings hides one in other units.
        """
        count = len(windows)
        for sensor, places in self._places.items():
            values = windows[..., places].astype(np.float64).reshape(count, -1, 3)
            figures = np.ones((count, 4))
            figures[:, 1] = np.linalg.norm(values, axis=-1).mean(axis=1)
            figures[:, 2] = np.linalg.norm(values.mean(axis=1), axis=1)
            figures[:, 3] = np.ptp(values, axis=-1).sum(axis=1)
            self._add(self._sums, (recording, sensor), figures)
            if is_by_window:
                for row, (_, size, direction, _) in enumerate(figures.tolist()):
                    how = _how_odd(sensor.kind, size, direction, values.shape[1])
                    if how:
                        self._add(self._odd, (recording, sensor, how), figures[row : row + 1])
        for place in self._alone:
            sizes = np.abs(windows[..., place].astype(np.float64)).reshape(count, -1)
            figures = np.ones((count, 4))
            figures[:, 1] = sizes.mean(axis=1)
            self._add(self._sums, (recording, place), figures)

    @staticmethod
    def _add(sums: dict[Any, Sums], key: Any, figures: Numbers) -> None:
        sums[key] = sums.get(key, 0.0) + figures.sum(axis=0)

    def take_people(
        self, windows: NDArray[np.generic], subjects: NDArray[np.integer] | None
    ) -> None:
        """Look at windows of which no recording is known, and at who was recorded, (n,)."""
        if not self._places and not self._alone:
            return
        if subjects is None:
            subjects = np.full(len(windows), NO_SUBJECT)
        for subject in np.unique(subjects):
            person = ""
            if subject != NO_SUBJECT:
                person = f"subject {subject}"
            self.take(person, windows[subjects == subject], is_by_window=True)

    def problems(self) -> Iterator[Implausible]:
        """Yield what is wrong, recording by recording, then parts of recordings."""
        looks = list(self._sums.items())
        for (recording, sensor, _), sums in self._odd.items():
            windows = self._sums[recording, sensor][0]
            if sums[0] >= max(LEAST_ODD, ODD_SHARE * windows):
                part = f"{sums[0]:.0f} of {windows:.0f} windows"
                looks.append(((", ".join(filter(None, (recording, part))), sensor), sums))
        for (recording, measured), sums in looks:
            size, direction, differences = (sums[1:] / sums[0]).tolist()
            if isinstance(measured, int):
                unit = self._alone[measured]
                wrong = AXIS_SIZES[unit].problem(size)
                name = self._signals.channels[measured]
                give = f"it in {unit}"
            else:
                wrong = SIZE_PROBLEMS[measured.kind](size)
                if wrong is None and measured.kind == ACCELERATION:
                    wrong = direction_problem(direction)
                if wrong is None and not differences:
                    wrong = "x, y and z are equal in every reading; are they one column?"
                name = measured.name
                names = measured.channels
                give = f"{names[0]} to {names[-1]} in {KIND_UNITS[measured.kind]}"
                give += _ALSO.get(measured.kind, "")
            if wrong is not None:
                yield Implausible(recording, name, size, wrong, give)

    def refuse(self, where: str) -> None:
        """Raises DataError for the first recording that is not plausible."""
        for problem in self.problems():
            clauses = [where, problem.recording, problem.name, as_sentence(problem.wrong)]
            raise DataError(
                f"{': '.join(filter(None, clauses))} Give {problem.give}, or leave the recordings"
                " out"
            )


def as_sentence(wrong: str) -> str:
    """Return what is wrong as a sentence, which a question is already."""
    if wrong.endswith("?"):
        return wrong
    return f"{wrong}."


def _how_odd(kind: str, size: float, direction: float, steps: int) -> str:
    """Return how a window is in no unit of its kind by itself; empty where it may be.

    A short one may be of a free fall, and a gyroscope at rest may give 0.
    """
    is_wrong = SIZE_PROBLEMS[kind](size) is not None
    if is_wrong and size > 1.0:
        return "large"
    is_still = kind == ACCELERATION and (is_wrong or direction_problem(direction) is not None)
    if is_still and steps >= LONG_WINDOW:
        return "small"
    return ""


_ALSO = {ACCELERATION: ", gravity included"}


HELD_OUT_SHARE = 0.2
HELD_OUT_SEED = 0
BY_GROUPS = "groups"
RANDOM = "random"
IN_TIME = "time"
LEAK = (
    "a fifth of the windows at random is the test, so windows that overlap, of one person and"
    " device, are on both sides: its figures say nothing about new people or devices;"
    " jobs.train.data.split groups holds out whole ones"
)


Parts = NDArray[np.integer] | NDArray[np.bool_]
"""Numbers that say whether a window is for the test; -1 is for neither part."""


@dataclass(frozen=True)
class Pair:
    """One person with one device, in one session or of one set, by name."""

    user: str
    device: str = ""
    session: str = ""
    set: str = ""

    def group(self, kind: str) -> str:
        """Return its name in `user`, `device`, `session` or `set`."""
        return str(getattr(self, kind))


@dataclass(frozen=True)
class WindowCounts:
    """What a first reading found: windows by pair and activity, a number in `labels`.

    `kinds` are the groups that the recordings know.
    """

    windows: dict[tuple[Pair, int], int]
    labels: Sequence[str]
    kinds: Sequence[str]

    @property
    def rows(self) -> int:
        """Number of windows."""
        return sum(self.windows.values())

    def activities(self) -> tuple[int, ...]:
        """Return the activities with a window, in the order of `labels`."""
        return tuple(sorted({activity for _, activity in self.windows}))

    def names(self) -> tuple[str, ...]:
        """Return the names of `activities`."""
        return tuple(self.labels[activity] for activity in self.activities())

    def note(self) -> str:
        """Say who and what was recorded."""
        counts = []
        for kind in self.kinds:
            names = self.groups(kind)
            listing = f" ({', '.join(names[:MOST_SHOWN])})" if kind != "session" else ""
            counts.append(f"{len(names)} {kind}s{listing}")
        return ", ".join(counts)

    def groups(self, kind: str) -> tuple[str, ...]:
        """Names of the users, devices or sessions with a window, in alphabetical order."""
        return tuple(sorted({pair.group(kind) for pair, _ in self.windows}))


class WholeGroups:
    """A fifth of the groups is the test, whole: the same ones in every job, whatever its seed."""

    def __init__(
        self, path: Path, counted: WindowCounts, kind: str, test_groups: Sequence[str] = ()
    ) -> None:
        """Raises DataError where there is one group, or a class would have no training window."""
        self._kind, names = kind, counted.groups(kind)
        if len(names) < 2:
            other = next((name for name in counted.kinds if len(counted.groups(name)) > 1), None)
            if other is not None:
                also = f"set jobs.train.data.groups to {other}, or "
            else:
                also = ""
            named = ""
            if names[0] == path.name:
                named = " (the folder that you named, whose folders say what was done)"
            raise DataError(
                f"{path}: expected windows of at least 2 {kind}s, so that one can be held out for"
                f" the test, got {names[0]!r:.60} alone{named}; add recordings, {also}set"
                f" jobs.train.data.split to {IN_TIME}, which tests the last fifth of each"
            )
        if test_groups and set(test_groups).isdisjoint(names):
            raise DataError(
                f"{path}: test_people: none of {', '.join(test_groups):.100} has windows, which are"
                f" of {', '.join(names):.100}; correct test_people, or say [] for a fifth of the"
                " people"
            )
        self._numbers = {name: number for number, name in enumerate(names)}
        self._test = set(test_groups) & set(names) or {
            name for name, test in zip(names, held_out_places(len(names)), strict=True) if test
        }
        trained = {
            activity for pair, activity in counted.windows if pair.group(kind) not in self._test
        }
        for activity in counted.activities():
            if activity not in trained:
                raise DataError(
                    f"{path}: {counted.labels[activity]!r} has windows of the {kind}s"
                    f" {', '.join(sorted(self._test))} alone, who are held out for the test; add"
                    " recordings of others, leave the activity out, or set jobs.train.data.split to"
                    f" {IN_TIME}"
                )
        note = counted.note()
        absent = sorted(set(test_groups) - set(names))
        if absent:
            note += f"; no windows of {', '.join(absent)}, who are the test too"
        self.held_out = HeldOut(kind, names, note=note)

    def of(self, pair: Pair, activity: int, windows: int) -> tuple[int, Parts]:
        """The group's number, and which of the next windows are for the test."""
        name = pair.group(self._kind)
        return self._numbers[name], np.full(windows, name in self._test)


class RandomWindows:
    """A fifth of the windows is the test, which is a leak.

    No group is named, because none stays whole.
    """

    def __init__(self, counted: WindowCounts) -> None:
        self._test = held_out_places(counted.rows)
        self._begin = 0
        self.held_out = HeldOut("window", leak=LEAK, note=counted.note())

    def of(self, pair: Pair, activity: int, windows: int) -> tuple[int, Parts]:
        """Return `NO_SUBJECT` as the group, and which of the next windows are for the test."""
        self._begin += windows
        return NO_SUBJECT, self._test[self._begin - windows : self._begin]


class LastWindows:
    """The last fifth of the windows of each recording and activity is the test.

    Windows before it that share readings with it are in neither part.
    """

    def __init__(self, path: Path, counted: WindowCounts, overlap: int) -> None:
        """`overlap` windows share readings with the next one.

        Raises DataError where an activity would have no window of the training or the test.
        """
        self._counts = counted.windows
        self._overlap = overlap
        self._seen = dict.fromkeys(counted.windows, 0)
        self.held_out = HeldOut(
            "window", note=f"{counted.note()}; the test is the last fifth of each recording"
        )
        filled_parts = {
            (key[1], part) for key in counted.windows for part in self._parts(key).tolist()
        }
        for activity in counted.activities():
            if {(activity, 0), (activity, 1)} <= filled_parts:
                continue
            raise DataError(
                f"{path}: {counted.labels[activity]!r} has too few windows for a last fifth; record"
                " longer, or set jobs.train.data.window_stride to window_steps"
            )

    def of(self, pair: Pair, activity: int, windows: int) -> tuple[int, Parts]:
        """Return `NO_SUBJECT`, and 1 for each of the next windows of the test, -1 for no part."""
        key = pair, activity
        begin = self._seen[key]
        self._seen[key] += windows
        return NO_SUBJECT, self._parts(key)[begin : begin + windows]

    def _parts(self, key: tuple[Pair, int]) -> Parts:
        part_numbers = np.zeros(self._counts[key], np.int8)
        tested = round(HELD_OUT_SHARE * len(part_numbers))
        if tested:
            part_numbers[-tested - self._overlap :] = -1
            part_numbers[-tested:] = 1
        return part_numbers


def refuse_other_groups(path: Path, split: str, kind: str, kinds: Sequence[str]) -> None:
    """Raises DataError for groups that these recordings do not know, and for another split."""
    if split not in (BY_GROUPS, RANDOM, IN_TIME) or kind not in kinds:
        raise DataError(
            f"{path}: groups and split: expected {' or '.join(kinds)} and {BY_GROUPS}, {RANDOM} or"
            f" {IN_TIME},"
            f" got {kind!r:.40} and {split!r:.40}; correct jobs.train.data"
        )


def chooser_of_test(
    path: Path, counted: WindowCounts, cutting: Cutting, test_people: Sequence[str] = ()
) -> WholeGroups | RandomWindows | LastWindows:
    """Return what chooses the test's windows. Raises DataError where none can.

    `test_people` are those that a published set holds out.
    """
    if cutting.split == RANDOM:
        return RandomWindows(counted)
    if cutting.split == IN_TIME:
        return LastWindows(path, counted, (cutting.window_steps - 1) // cutting.window_stride)
    kind = cutting.groups
    return WholeGroups(path, counted, kind, test_people if kind == "user" else ())


def held_out_places(count: int) -> Flags:
    """Return which of `count` are for the test: a fifth, one at least, the same at every call."""
    random = np.random.Generator(np.random.Philox([HELD_OUT_SEED, 0]))
    chosen = np.zeros(count, np.bool_)
    chosen[random.permutation(count)[: max(1, round(HELD_OUT_SHARE * count))]] = True
    return chosen
