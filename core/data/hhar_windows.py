"""The windows of an HHAR file: cut within one person, device and activity."""

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from core.data.archive import ZIP_DAMAGE, one_line
from core.data.csv_file import CsvFile
from core.data.recordings import Cutting, Report, cut, silent
from core.data.window_groups import Pair
from core.errors import DataError

COLUMNS = ("Index", "Arrival_Time", "Creation_Time", "x", "y", "z", "User", "Model", "Device", "gt")


AXES = ("x", "y", "z")


NEEDED = (*AXES, "User", "Device", "gt")
"""What a file of these columns has, in any case of the letters, besides `Arrival_Time`."""


NULL = "null"


ACTIVITIES = ("bike", "sit", "stand", "walk", "stairsup", "stairsdown", NULL)
"""In the order of the readme; the classes are those that have windows."""


FILES = (
    "Phones_accelerometer.csv",
    "Phones_gyroscope.csv",
    "Watch_accelerometer.csv",
    "Watch_gyroscope.csv",
)


LONGEST_GAP_MS = 1000.0
"""Readings come 5 to 20 ms apart. In the samples at hand the longest delay within a recording is 69
ms, and the shortest pause 4,604 ms."""


LOOKED_AT = 10_000
"""Steps of time from which the unit of the times is judged."""


MOST_PAIRS = 4096
"""The most pairs of a person and a device, each with the rest of a window in memory.

Published are nine people and eight phones.
"""


class HharFile(CsvFile):
    """The published columns, in any order where the first line names them."""

    def __init__(self, path: Path) -> None:
        """Raises DataError for a file of other columns."""
        super().__init__(path, COLUMNS)
        self.names = _canonical(path, self.names)
        missing = [name for name in ("Arrival_Time", *NEEDED) if name not in self.names]
        if missing:
            raise DataError(
                f"{path}:1: expected the columns {','.join(COLUMNS)}, or rows of these"
                f" {len(COLUMNS)}, got no {missing[0]} among {', '.join(self.names)[:120]}; restore"
                " the file from the original"
            )

    @contextmanager
    def _raw(self) -> Iterator[IO[bytes]]:
        member = member_of(self._path)
        if member is None:
            with super()._raw() as raw:
                yield raw
            return
        try:
            with zipfile.ZipFile(self._path) as archive, archive.open(member) as raw:
                yield raw
        except ZIP_DAMAGE as problem:
            raise DataError(
                f"{self._path}: {member}: damaged ({one_line(problem)[:80]}); fetch it again"
            ) from None


def member_of(path: Path) -> str | None:
    """The name of the published file in the published zip; None for another file."""
    if path.suffix.lower() != ".zip" or not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        return next(
            (name for name in archive.namelist() if PurePosixPath(name).name == FILES[0]), None
        )


def _canonical(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The names as published, whatever their case. Raises DataError for two that are one."""
    known = {name.lower(): name for name in COLUMNS}
    found = tuple(known.get(name.lower(), name) for name in names)
    for name in COLUMNS:
        if found.count(name) > 1:
            raise DataError(
                f"{path}:1: expected {name} once, got it twice but for its case; remove one"
            )
    return found


@dataclass
class _Stretch:
    """The open stretch of one pair.

    It has its activity, the time of its last row, and where its next window begins.
    """

    activity: int
    last_ms: float
    rest: NDArray[np.float32]
    skip: int = 0
    readings: int = 0

    def windows(self, samples: NDArray[np.float32], cutting: Cutting) -> NDArray[np.float32]:
        """Return windows that end in these rows, (count, window_steps, channels)."""
        rows = np.concatenate([self.rest, samples])
        found = cut(rows[self.skip :], cutting)
        begin = self.skip + len(found) * cutting.window_stride
        self.rest, self.skip = rows[begin:].copy(), max(0, begin - len(rows))
        return found


@dataclass(frozen=True)
class Piece:
    """Windows of one pair and activity, (count, window_steps, channels).

    `channels` is 0 where they are counted.
    """

    pair: Pair
    activity: int
    windows: NDArray[np.float32]


class WindowCutter:
    """Cuts rows into windows, chunk by chunk; the two readings of a file make the same ones."""

    def __init__(self, table: HharFile, cutting: Cutting, *, counts: bool = False) -> None:
        """With `counts` the windows have no channels; every number is read and checked anyway."""
        self._table = table
        self._cutting = cutting
        self._counts = counts
        self._codes: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._pairs: dict[Pair, int] = {}
        self._open: dict[int, _Stretch] = {}
        self.longest = 0
        """Readings of the longest stretch so far."""
        self.steps: list[float] = []
        """Between the times of neighbouring readings, as the file has them; the first `LOOKED_AT`
        that are above 0."""

    def pieces(self, report: Report = silent) -> Iterator[Piece]:
        """All windows of the file. Raises DataError naming line and column."""
        for chunk in self._table.chunks(("Arrival_Time", *AXES, "User", "Device", "gt"), report):
            codes = np.array(self._coded(chunk), np.int32).reshape(-1, 2)
            times = self._table.numbers(chunk, "Arrival_Time")
            samples = np.stack([self._table.numbers(chunk, name) for name in AXES], axis=1).astype(
                np.float32
            )
            if self._counts:
                samples = samples[:, :0]
            names = tuple(self._pairs)
            for code in np.unique(codes[:, 0]):
                rows = np.flatnonzero(codes[:, 0] == code)
                for activity, windows in self._of_pair(
                    int(code), codes[rows, 1], times[rows], samples[rows]
                ):
                    yield Piece(names[code], activity, windows)

    def _of_pair(
        self,
        code: int,
        activities: NDArray[np.int32],
        times: NDArray[np.float64],
        samples: NDArray[np.float32],
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        stretch = self._open.get(code)
        if stretch is None:
            before = times[0]
        else:
            before = stretch.last_ms
        step = np.diff(times, prepend=before)
        self.steps += step[step > 0][: LOOKED_AT - len(self.steps)].tolist()
        was = np.concatenate(
            [[activities[0] if stretch is None else stretch.activity], activities[:-1]]
        )
        ends = (activities != was) | (np.abs(step) > LONGEST_GAP_MS)
        for first, last in _between(np.flatnonzero(ends), len(times)):
            if stretch is None or ends[first]:
                stretch = _Stretch(int(activities[first]), 0.0, samples[:0])
            stretch.readings += int(last - first)
            self.longest = max(self.longest, stretch.readings)
            windows = stretch.windows(samples[first:last], self._cutting)
            if len(windows):
                yield stretch.activity, windows
        assert stretch is not None
        stretch.last_ms = float(times[-1])
        self._open[code] = stretch

    def _coded(self, chunk: Any) -> list[tuple[int, int]]:
        """Numbers of pair and activity, a row each."""
        known = self._codes
        found = []
        words = [chunk.columns[name] for name in ("User", "Device", "gt")]
        for row, triple in enumerate(zip(*words, strict=True)):
            code = known.get(triple)
            found.append(code if code is not None else self._new(chunk, row, triple))
        return found

    def _new(self, chunk: Any, row: int, triple: tuple[str, str, str]) -> tuple[int, int]:
        place, (user, device, activity) = (
            self._table.place(chunk.places[row]),
            (word.strip() for word in triple),
        )
        for name, word in (("User", user), ("Device", device)):
            if not word:
                raise DataError(
                    f"{place}: {name}: expected a name, got nothing; correct or remove the row"
                )
        if activity not in ACTIVITIES:
            raise DataError(
                f"{place}: gt: expected {', '.join(ACTIVITIES)}, got {activity!r:.60}; correct or"
                " remove the row, or bring other activities as windows in an .npz"
            )
        pair = Pair(user, device)
        number = self._pairs.setdefault(pair, len(self._pairs))
        if number >= MOST_PAIRS:
            raise DataError(
                f"{place}: more than {MOST_PAIRS} pairs of User and Device, got {user!r:.40},"
                f" {device!r:.40}: this is no recording of some people; restore the file from the"
                " original"
            )
        if (
            len(self._codes) >= MOST_PAIRS
        ):  # blanks around a word make another spelling, without end
            self._codes.clear()
        self._codes[triple] = number, ACTIVITIES.index(activity)
        return self._codes[triple]


def _between(ends: NDArray[np.intp], count: int) -> Iterator[tuple[int, int]]:
    places = [0, *(int(place) for place in ends if place), count]
    return pairwise(places)
