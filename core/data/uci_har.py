"""The classic "UCI HAR Dataset": windows of 128 steps that are already cut.

A set has nine files of inertial signals.

`train/Inertial Signals/body_acc_x_train.txt` and its eight companions hold one window a line, 128
readings at 50 Hz; `train/y_train.txt` and `train/subject_train.txt` hold one number a line; the
same again for `test`.
"""

import io
import math
from collections.abc import Iterator, Sequence

import numpy as np

from core.data.archive import FileTree
from core.data.arrays import Integers, Singles
from core.data.filters import CHANNELS, NINE_CHANNELS
from core.data.recordings import (
    LARGEST_INTEGER,
    Cutting,
    Recordings,
    Report,
    is_missing,
    no_number,
    number,
)
from core.data.signals import TWO_WAY
from core.data.source import Reader
from core.ground.errors import DataError

ACTIVITIES = "activity_labels.txt"
"""File of the UCI sets: the name of each activity's number."""


def rows_of(content: bytes, columns: int, where: str) -> Iterator[tuple[str, list[float]]]:
    """Yield the place of each line of a text, `where` with its number, and the line's numbers.

    Blanks separate them. Raises DataError for an empty text, a row of another width, a word that is
    no number, NaN or infinity.
    """
    is_empty = True
    text = content.decode("latin-1")
    for line, row in enumerate(io.StringIO(text, newline=None), start=1):
        fields = row.split()
        if not fields:
            continue
        is_empty = False
        place = f"{where}:{line}"
        if len(fields) != columns:
            raise DataError(
                f"{place}: expected {columns} numbers, got {len(fields)}; a row was cut short or"
                " joined, restore the file from the original"
            )
        values = list(map(number, fields))
        for word, value in zip(fields, values, strict=True):
            if not math.isfinite(value):
                raise _not_finite(place, word, value)
        yield place, values
    if is_empty:
        raise DataError(
            f"{where}: expected rows of {columns} numbers, got an empty file; restore it from the"
            " original"
        )


def _not_finite(place: str, word: str, value: float) -> DataError:
    if math.isnan(value) and not is_missing(word):
        remedy = no_number(word) or "correct the line"
        return DataError(f"{place}: expected a number, got {word[:40]!r}: {remedy}")
    return DataError(
        f"{place}: expected a finite number, got {word[:40]!r}; remove or repair the row"
    )


def integers_of(tree: FileTree, name: str) -> dict[str, int]:
    """Return the whole number of each line of a file of a set, by its place.

    Raises DataError as `rows_of` does, also for one below 0 or above 2**31 - 1.
    """
    integers = {}
    for place, [value] in rows_of(tree.read(name), 1, f"{tree.where}: {name}"):
        if not value.is_integer() or not 0 <= value <= LARGEST_INTEGER:
            raise DataError(
                f"{place}: expected a whole number from 0 to {LARGEST_INTEGER} in column 1, got"
                f" {value:g}; correct the line"
            )
        integers[place] = int(value)
    return integers


def activity_labels(tree: FileTree) -> tuple[str, ...]:
    """Names of the activities, from lines such as `1 WALKING`, numbered from 1 without a gap.

    Raises DataError naming the wrong line.
    """
    labels: list[str] = []
    where = f"{tree.where}: {ACTIVITIES}"
    for place, line in enumerate(tree.read(ACTIVITIES).decode("latin-1").splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or fields[0] != str(len(labels) + 1) or fields[1] in labels:
            raise DataError(
                f"{where}:{place}: expected '{len(labels) + 1} NAME', got {line.strip()[:40]!r};"
                " correct the line"
            )
        labels.append(fields[1])
    if not labels:
        raise DataError(
            f"{where}: expected lines such as '1 WALKING', got none; restore it from the original"
        )
    return tuple(labels)


WINDOW_STEPS = 128
SETS = ("train", "test")


def deciding_files(names: Sequence[str]) -> tuple[str, ...]:
    """The files that decide the result, of all the archive's names."""
    fixed = {ACTIVITIES}
    for part in SETS:
        fixed |= {f"{part}/y_{part}.txt", f"{part}/subject_{part}.txt"}
        fixed |= {_signal(part, channel) for channel in CHANNELS}
    return tuple(name for name in names if name in fixed)


def read_uci_har(tree: FileTree, cutting: Cutting, report: Report) -> Recordings:
    """The published windows, float32 (windows, 128, 9), training rows first.

    The steps of a window must be the published 128: the signals between windows are not in this
    set. Raises DataError naming file, line and remedy.
    """
    if cutting.window_steps != WINDOW_STEPS:
        raise DataError(
            f"{tree.where}: window_steps: this set comes cut into windows of {WINDOW_STEPS} steps,"
            f" got {cutting.window_steps}; use {WINDOW_STEPS}, or the raw HAPT recordings, which"
            " can be cut to any length"
        )
    if cutting.filters != TWO_WAY:
        raise DataError(
            f"{tree.where}: filters: this set comes filtered {TWO_WAY}, got {cutting.filters}; use"
            f" {TWO_WAY}, or the raw HAPT recordings"
        )
    labels = activity_labels(tree)
    sets = [_read_set(tree, part, len(labels), report) for part in SETS]
    windows, classes, subjects = (np.concatenate(pair) for pair in zip(*sets, strict=True))
    return Recordings(
        windows,
        classes,
        subjects,
        train_windows=len(sets[0][0]),
        labels=labels,
        signals=NINE_CHANNELS,
    )


def _read_set(
    tree: FileTree, part: str, activities: int, report: Report
) -> tuple[Singles, Integers, Integers]:
    name = f"{part}/y_{part}.txt"
    classes = integers_of(tree, name)
    for place, activity in classes.items():
        if not 1 <= activity <= activities:
            raise DataError(
                f"{place}: expected an activity from 1 to {activities}, got {activity}; correct the"
                " line"
            )
    subjects_name = f"{part}/subject_{part}.txt"
    subjects = integers_of(tree, subjects_name)
    _same_rows(tree, subjects_name, len(subjects), name, len(classes))
    windows = np.empty((len(classes), WINDOW_STEPS, len(CHANNELS)), dtype=np.float32)
    for index, channel in enumerate(CHANNELS):
        signal = _signal(part, channel)
        rows = rows_of(tree.read(signal), WINDOW_STEPS, f"{tree.where}: {signal}")
        table = np.array([values for _, values in rows])
        _same_rows(tree, signal, len(table), name, len(classes))
        windows[:, :, index] = table
        report("reading", SETS.index(part) * len(CHANNELS) + index + 1, len(SETS) * len(CHANNELS))
    return (
        windows,
        np.array(list(classes.values()), np.int32) - 1,
        np.array(list(subjects.values()), np.int32),
    )


def _signal(part: str, channel: str) -> str:
    return f"{part}/Inertial Signals/{channel}_{part}.txt"


def _same_rows(tree: FileTree, name: str, rows: int, reference: str, expected: int) -> None:
    if rows != expected:
        raise DataError(
            f"{tree.where}: {name}: expected {expected} rows as in {reference}, got {rows}; one of"
            " the two was cut short, restore both"
        )


class UciHar(Reader):
    """The classic UCI HAR set."""

    name = "uci-har"
    accepted = "the UCI HAR set as a zip or folder"
    is_what = (
        "the classic [UCI HAR Dataset](https://archive.ics.uci.edu/dataset/240), zip or folder:"
        " nine inertial-signal files a set"
    )
    windows_are_cut = "by its authors: 128 steps at stride 64"
    marker = "train/Inertial Signals/"
    suffix = None
    usual_names = ("UCI HAR Dataset.zip", "UCI HAR Dataset")
    settings = ("window_steps", "window_stride", "filters")
    deciding_files = staticmethod(deciding_files)
    read = staticmethod(read_uci_har)
