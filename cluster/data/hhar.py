"""The UCI set "Heterogeneity Activity Recognition" (HHAR): one reading of an accelerometer or gyroscope a line.

`Phones_accelerometer.csv` as published, with or without its line of names: `Index,Arrival_Time,Creation_Time,x,y,z,
User,Model,Device,gt`. Times are in ms (arrival) and ns, x, y, z in m/s2; each phone samples at a rate of its own, 50
to 200 Hz. Source: Stisen et al. 2015, https://doi.org/10.1145/2809695.2809718, and the set's readme.

A window is of one person, one device and one activity, and has no gap in time: neighbouring rows of one person and
device are one stretch while their activity stays and `Arrival_Time` changes by at most `LONGEST_GAP_MS`. Rows of
several devices may alternate. The file is read twice, in constant memory: first the windows of each person, device and
activity are counted, then they are cut.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data.batch import Batch, Examples
from cluster.data.class_folders import held_out
from cluster.data.csv_file import CsvFile
from cluster.data.dataset import CLASSIFICATION, MOST_SHOWN, HeldOut
from cluster.data.given import Batches
from cluster.data.reader import Reader
from cluster.data.recordings import NO_SUBJECT, Cutting, Report, check_window, cut, silent
from cluster.errors import DataError

COLUMNS = ("Index", "Arrival_Time", "Creation_Time", "x", "y", "z", "User", "Model", "Device", "gt")
AXES = ("x", "y", "z")
NULL = "null"
ACTIVITIES = ("bike", "sit", "stand", "walk", "stairsup", "stairsdown", NULL)
"""In the order of the readme; the classes are those that have windows."""
FILES = ("Phones_accelerometer.csv", "Phones_gyroscope.csv", "Watch_accelerometer.csv", "Watch_gyroscope.csv")
LONGEST_GAP_MS = 1000.0
"""Readings come 5 to 20 ms apart. In the samples at hand the longest delay within a recording is 69 ms, and the
shortest pause 4,604 ms."""
MOST_PAIRS = 4096
"""Of a person and a device, each with the rest of a window in memory. Published are nine people and eight phones."""
GROUPS = ("user", "device")
BY_GROUPS, RANDOM = "groups", "random"
LEAK = (
    "a fifth of the windows at random is the test, so windows that overlap, of one person and device, are on both "
    "sides: its figures say nothing about new people or devices; jobs.train.data.split groups holds out whole ones"
)


class HharFile(CsvFile):
    """The published columns, in any order where the first line names them."""

    words_instead = ""

    def __init__(self, path: Path) -> None:
        """Raises DataError for a file of other columns."""
        super().__init__(path, COLUMNS)
        missing = [name for name in COLUMNS[1:] if name not in self.names and name not in ("Creation_Time", "Model")]
        if missing:
            raise DataError(
                f"{path}:1: expected the columns {','.join(COLUMNS)}, or rows of these {len(COLUMNS)}, got no "
                f"{missing[0]} among {', '.join(self.names)[:120]}; restore the file from the original"
            )


@dataclass(frozen=True)
class Pair:
    """One person with one device, by name."""

    user: str
    device: str

    def group(self, kind: str) -> str:
        """Its name in `user` or `device`."""
        return self.user if kind == "user" else self.device


@dataclass
class _Stretch:
    """The open stretch of one pair: its activity, the time of its last row, and where its next window begins."""

    activity: int
    last_ms: float
    rest: NDArray[np.float32]
    skip: int = 0

    def windows(self, samples: NDArray[np.float32], cutting: Cutting) -> NDArray[np.float32]:
        """Those that end in these further rows, (count, window_steps, channels)."""
        rows = np.concatenate([self.rest, samples])
        found = cut(rows[self.skip :], cutting)
        begin = self.skip + len(found) * cutting.window_stride
        self.rest, self.skip = rows[begin:].copy(), max(0, begin - len(rows))
        return found


@dataclass(frozen=True)
class _Piece:
    """Windows of one pair and activity, (count, window_steps, channels); `channels` is 0 where they are counted."""

    pair: Pair
    activity: int
    windows: NDArray[np.float32]


class _Cutter:
    """Cuts rows into windows, chunk by chunk; the two readings of a file make the same ones."""

    def __init__(self, table: HharFile, cutting: Cutting, *, counts: bool = False) -> None:
        """With `counts` the windows have no channels; every number is read and checked anyway."""
        self._table, self._cutting, self._counts = table, cutting, counts
        self._codes: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._pairs: dict[Pair, int] = {}
        self._open: dict[int, _Stretch] = {}

    def pieces(self, report: Report = silent) -> Iterator[_Piece]:
        """All windows of the file. Raises DataError naming line and column."""
        for chunk in self._table.chunks(("Arrival_Time", *AXES, "User", "Device", "gt"), report):
            codes = np.array(self._coded(chunk), np.int32).reshape(-1, 2)
            times = self._table.numbers(chunk, "Arrival_Time")
            samples = np.stack([self._table.numbers(chunk, name) for name in AXES], axis=1).astype(np.float32)
            if self._counts:
                samples = samples[:, :0]
            names = tuple(self._pairs)
            for code in np.unique(codes[:, 0]):
                rows = np.flatnonzero(codes[:, 0] == code)
                for activity, windows in self._of_pair(int(code), codes[rows, 1], times[rows], samples[rows]):
                    yield _Piece(names[code], activity, windows)

    def _of_pair(
        self, code: int, activities: NDArray[np.int32], times: NDArray[np.float64], samples: NDArray[np.float32]
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        stretch = self._open.get(code)
        before = times[0] if stretch is None else stretch.last_ms
        step = np.diff(times, prepend=before)
        was = np.concatenate([[activities[0] if stretch is None else stretch.activity], activities[:-1]])
        ends = (activities != was) | (np.abs(step) > LONGEST_GAP_MS)
        for first, last in _between(np.flatnonzero(ends), len(times)):
            if stretch is None or ends[first]:
                stretch = _Stretch(int(activities[first]), 0.0, samples[:0])
            windows = stretch.windows(samples[first:last], self._cutting)
            if len(windows):
                yield stretch.activity, windows
        assert stretch is not None
        stretch.last_ms = float(times[-1])
        self._open[code] = stretch

    def _coded(self, chunk: Any) -> list[tuple[int, int]]:
        """Numbers of pair and activity, a row each."""
        known, found = self._codes, []
        words = [chunk.columns[name] for name in ("User", "Device", "gt")]
        for row, triple in enumerate(zip(*words, strict=True)):
            code = known.get(triple)
            found.append(code if code is not None else self._new(chunk, row, triple))
        return found

    def _new(self, chunk: Any, row: int, triple: tuple[str, str, str]) -> tuple[int, int]:
        place, (user, device, activity) = self._table.place(chunk.places[row]), (word.strip() for word in triple)
        for name, word in (("User", user), ("Device", device)):
            if not word:
                raise DataError(f"{place}: {name}: expected a name, got nothing; correct or remove the row")
        if activity not in ACTIVITIES:
            raise DataError(
                f"{place}: gt: expected {', '.join(ACTIVITIES)}, got {activity!r:.60}; correct or remove the row"
            )
        pair = Pair(user, device)
        number = self._pairs.setdefault(pair, len(self._pairs))
        if number >= MOST_PAIRS:
            raise DataError(
                f"{place}: more than {MOST_PAIRS} pairs of User and Device, got {user!r:.40}, {device!r:.40}: this is "
                f"no recording of some people; restore the file from the original"
            )
        if len(self._codes) >= MOST_PAIRS:  # blanks around a word make another spelling, without end
            self._codes.clear()
        self._codes[triple] = number, ACTIVITIES.index(activity)
        return self._codes[triple]


def _between(ends: NDArray[np.intp], count: int) -> Iterator[tuple[int, int]]:
    places = [0, *(int(place) for place in ends if place), count]
    return pairwise(places)


@dataclass(frozen=True)
class Counted:
    """What the first reading found: windows by pair and activity; `rows` is how many there are in all."""

    windows: dict[tuple[Pair, int], int]

    @property
    def rows(self) -> int:
        """All windows."""
        return sum(self.windows.values())

    def activities(self) -> tuple[int, ...]:
        """Those with a window, in the order of `ACTIVITIES`."""
        return tuple(sorted({activity for _, activity in self.windows}))

    def note(self) -> str:
        """Who and what was recorded."""
        users, devices = self.groups("user"), self.groups("device")
        shown = ", ".join(devices[:MOST_SHOWN])
        return f"{len(users)} users ({', '.join(users[:MOST_SHOWN])}), {len(devices)} devices ({shown})"

    def groups(self, kind: str) -> tuple[str, ...]:
        """Names of the users or devices with a window, in alphabetical order."""
        return tuple(sorted({pair.group(kind) for pair, _ in self.windows}))


def read(path: Path, cutting: Cutting, report: Report) -> Examples:
    """Windows, float32 (window_steps, 3) in the file's own units; the rows of people or devices held out are the test.

    Raises DataError naming line, column and remedy, also while the batches are drawn.
    """
    check_window(cutting)
    if cutting.groups not in GROUPS or cutting.split not in (BY_GROUPS, RANDOM):
        raise DataError(
            f"{path}: groups and split: expected {' or '.join(GROUPS)} and {BY_GROUPS} or {RANDOM}, got "
            f"{cutting.groups!r:.40} and {cutting.split!r:.40}; correct jobs.train.data"
        )
    table = HharFile(path)
    counted = count(table, cutting, report)
    labels = tuple(ACTIVITIES[activity] for activity in counted.activities())
    if not counted.rows:
        raise DataError(
            f"{path}: expected a stretch of {cutting.window_steps} readings of one person, device and activity, got "
            f"none; use a smaller jobs.train.data.window_steps"
        )
    if len(labels) < 2:
        raise DataError(f"{path}: expected windows of at least 2 activities, got {labels[0]} alone; add recordings")
    chosen = _Random(counted) if cutting.split == RANDOM else _Whole(path, counted, cutting.groups)
    batches = Batches(_batches(table, cutting, counted, chosen), counted.rows)
    return Examples(batches, CLASSIFICATION, labels, standardized=True, held_out=chosen.held_out)


def count(table: HharFile, cutting: Cutting, report: Report) -> Counted:
    """Windows of each person, device and activity. Raises DataError naming line and column."""
    found: dict[tuple[Pair, int], int] = {}
    for piece in _Cutter(table, cutting, counts=True).pieces(report):
        if cutting.null_class or ACTIVITIES[piece.activity] != NULL:
            key = piece.pair, piece.activity
            found[key] = found.get(key, 0) + len(piece.windows)
    return Counted(found)


class _Whole:
    """A fifth of the groups is the test, whole: the same ones in every job, whatever its seed."""

    def __init__(self, path: Path, counted: Counted, kind: str) -> None:
        """Raises DataError where there is one group, or a class would have no training window."""
        self._kind, names = kind, counted.groups(kind)
        if len(names) < 2:
            other = next(name for name in GROUPS if name != kind)
            also = f"set jobs.train.data.groups to {other}, or " if len(counted.groups(other)) > 1 else ""
            raise DataError(
                f"{path}: expected windows of at least 2 {kind}s, so that one can be held out for the test, got "
                f"{names[0]!r:.60} alone; add recordings, {also}set jobs.train.data.split to random, which is a leak"
            )
        self._numbers = {name: number for number, name in enumerate(names)}
        self._test = {name for name, test in zip(names, held_out(len(names), 0), strict=True) if test}
        trained = {activity for pair, activity in counted.windows if pair.group(kind) not in self._test}
        for activity in counted.activities():
            if activity not in trained:
                raise DataError(
                    f"{path}: {ACTIVITIES[activity]!r} has windows of the {kind}s {', '.join(sorted(self._test))} "
                    f"alone, who are held out for the test; add recordings of others, or leave the activity out"
                )
        self.held_out = HeldOut(kind, names, note=counted.note())

    def of(self, pair: Pair, windows: int) -> tuple[int, NDArray[np.bool_]]:
        """The group's number, and which of the next windows are for the test."""
        name = pair.group(self._kind)
        return self._numbers[name], np.full(windows, name in self._test)


class _Random:
    """A fifth of the windows is the test, which is a leak; no group is named, because none stays whole."""

    def __init__(self, counted: Counted) -> None:
        self._test, self._begin = np.array(held_out(counted.rows, 0)), 0
        self.held_out = HeldOut("window", leak=LEAK, note=counted.note())

    def of(self, pair: Pair, windows: int) -> tuple[int, NDArray[np.bool_]]:
        """As `_Whole.of`."""
        self._begin += windows
        return NO_SUBJECT, self._test[self._begin - windows : self._begin]


def _batches(table: HharFile, cutting: Cutting, counted: Counted, chosen: _Whole | _Random) -> Iterator[Batch]:
    classes = {activity: place for place, activity in enumerate(counted.activities())}
    left = dict(counted.windows)
    for piece in _Cutter(table, cutting).pieces():
        if piece.activity not in classes or not len(piece.windows):
            continue
        key, rows = (piece.pair, piece.activity), len(piece.windows)
        left[key] = left.get(key, 0) - rows
        if left[key] < 0:
            raise DataError(f"{table.where}: changed while it was read; run it again")
        group, test = chosen.of(piece.pair, rows)
        for is_test in (False, True):
            x = piece.windows[test == is_test]
            if len(x):
                yield Batch(
                    np.ascontiguousarray(x), np.full(len(x), classes[piece.activity], np.int32),
                    np.full(len(x), group, np.int32), test=is_test,
                )  # fmt: skip
    if any(left.values()):
        raise DataError(f"{table.where}: changed while it was read; run it again")


class Hhar(Reader):
    """See the module."""

    name = "hhar"
    accepted = "HHAR's Phones_accelerometer.csv"
    is_what = (
        "[Heterogeneity Activity Recognition](https://archive.ics.uci.edu/dataset/344): `Phones_accelerometer.csv` as "
        "published, or another file of its columns"
    )
    windows_are_cut = "here: within one person, device and activity, (`window_steps`, 3)"
    marker = None
    suffix = None
    usual_names = (FILES[0],)
    settings = ("window_steps", "window_stride", "groups", "split", "null_class")
    read = staticmethod(read)

    @staticmethod
    def recognizes(path: Path) -> bool:
        """A file of one of the published names, or a .csv whose first line has the published names of columns."""
        if not path.is_file() or path.suffix.lower() != ".csv":
            return False
        if path.name in FILES:
            return True
        with path.open("rb") as stream:
            first = stream.readline(4096).decode("utf-8-sig", "replace")
        return set(COLUMNS[3:]) <= set(first.strip().replace("\t", ",").replace(";", ",").split(","))
