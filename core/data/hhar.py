"""The UCI set "Heterogeneity Activity Recognition" (HHAR).

A line is one reading of an accelerometer or gyroscope.

`Phones_accelerometer.csv` as published, with or without its line of names:
`Index,Arrival_Time,Creation_Time,x,y,z, User,Model,Device,gt`. Times are in ms (arrival) and ns, x,
y, z in m/s2; each phone samples at a rate of its own, 50 to 200 Hz. Source: Stisen et al. 2015,
https://doi.org/10.1145/2809695.2809718, and the set's readme.

A window is of one person, one device and one activity, and has no gap in time: neighbouring rows of
one person and device are one stretch while their activity stays and `Arrival_Time` changes by at
most `LONGEST_GAP_MS`. Rows of several devices may alternate. The file is read twice, in constant
memory: first the windows of each person, device and activity are counted, then they are cut.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from core.data.batch import Batch, Examples
from core.data.csv_file import delimiter_of
from core.data.dataset import CLASSIFICATION
from core.data.given import Batches
from core.data.hhar_windows import (
    ACTIVITIES,
    AXES,
    FILES,
    NEEDED,
    NULL,
    HharFile,
    WindowCutter,
    member_of,
)
from core.data.reader import Reader
from core.data.recordings import Cutting, Report, check_window
from core.data.signals import Signals
from core.data.window_groups import (
    Pair,
    RandomWindows,
    WholeGroups,
    WindowCounts,
    chosen,
    refuse_other_groups,
)
from core.errors import DataError
from core.plausible import times_problem

GROUPS = ("user", "device")


def read(path: Path, cutting: Cutting, report: Report) -> Examples:
    """Return the windows, float32 (window_steps, 3) in the file's own units.

    The rows of people or devices held out are the test.

    Raises DataError naming line, column and remedy, also while the batches are drawn.
    """
    check_window(cutting)
    refuse_other_groups(path, cutting.split, cutting.groups, GROUPS)
    table = HharFile(path)
    counted = count(table, cutting, report)
    test = chosen(path, counted, cutting.split, cutting.groups)
    batches = Batches(_batches(table, cutting, counted, test), counted.rows)
    return Examples(
        batches,
        CLASSIFICATION,
        counted.names(),
        standardized=True,
        held_out=test.held_out,
        signals=Signals(AXES),
    )


def count(table: HharFile, cutting: Cutting, report: Report) -> WindowCounts:
    """Windows of each person, device and activity. Raises DataError naming line and column."""
    found: dict[tuple[Pair, int], int] = {}
    cutter = WindowCutter(table, cutting, counts=True)
    for piece in cutter.pieces(report):
        if cutting.null_class or ACTIVITIES[piece.activity] != NULL:
            key = piece.pair, piece.activity
            found[key] = found.get(key, 0) + len(piece.windows)
    if cutter.steps:
        wrong = times_problem(float(np.median(cutter.steps)), "ms")
    else:
        wrong = None
    if wrong is not None:
        raise DataError(
            f"{table.where}: Arrival_Time: {wrong} it is in ms as published; convert the column"
        )
    if not found:
        raise DataError(
            f"{table.where}: expected a stretch of {cutting.window_steps} readings of one person,"
            f" device and activity, the longest has {cutter.longest}; set"
            " jobs.train.data.window_steps to that or less"
        )
    return WindowCounts(found, ACTIVITIES, GROUPS)


def _batches(
    table: HharFile, cutting: Cutting, counted: WindowCounts, groups: WholeGroups | RandomWindows
) -> Iterator[Batch]:
    classes = {activity: place for place, activity in enumerate(counted.activities())}
    left = dict(counted.windows)
    for piece in WindowCutter(table, cutting).pieces():
        if piece.activity not in classes or not len(piece.windows):
            continue
        key = (piece.pair, piece.activity)
        rows = len(piece.windows)
        left[key] = left.get(key, 0) - rows
        if left[key] < 0:
            raise DataError(f"{table.where}: changed while it was read; run it again")
        group, test = groups.of(piece.pair, rows)
        for is_test in (False, True):
            x = piece.windows[test == is_test]
            if len(x):
                yield Batch(
                    np.ascontiguousarray(x),
                    np.full(len(x), classes[piece.activity], np.int32),
                    np.full(len(x), group, np.int32),
                    test=is_test,
                )
    if any(left.values()):
        raise DataError(f"{table.where}: changed while it was read; run it again")


class Hhar(Reader):
    """The set HHAR."""

    name = "hhar"
    accepted = "HHAR's Phones_accelerometer.csv"
    is_what = (
        "[Heterogeneity Activity Recognition](https://archive.ics.uci.edu/dataset/344):"
        " `Phones_accelerometer.csv` as published, or another file of its columns and activities"
    )
    windows_are_cut = "here: within one person, device and activity, (`window_steps`, 3)"
    marker = None
    suffix = None
    usual_names = (FILES[0],)
    settings = ("window_steps", "window_stride", "groups", "split", "null_class")
    read = staticmethod(read)

    @staticmethod
    def recognizes(path: Path) -> bool:
        """Whether it is a file or zip of a published name, or a .csv of the published columns.

        A .csv has the names of its columns in its first line.
        """
        if path.is_file() and member_of(path) is not None:
            return True
        if not path.is_file() or path.suffix.lower() != ".csv":
            return False
        if path.name in FILES:
            return True
        with path.open("rb") as stream:
            begin = stream.readline(4096).decode("utf-8-sig", "replace")
        first = next(iter(begin.splitlines()), "")  # lines of an old Mac are one to readline()
        names = {
            name.strip().lower()
            for name in next(csv.reader([first], delimiter=delimiter_of(first)), [])
        }
        return {name.lower() for name in NEEDED} <= names
