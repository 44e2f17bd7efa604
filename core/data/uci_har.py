"""The classic "UCI HAR Dataset": windows of 128 steps that are already cut.

A set has nine files of inertial signals.

`train/Inertial Signals/body_acc_x_train.txt` and its eight companions hold one window a line, 128
readings at 50 Hz; `train/y_train.txt` and `train/subject_train.txt` hold one number a line; the
same again for `test`. The text is parsed in bulk, and line by line only to locate what is wrong.
"""

import io
import math
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.data.archive import Tree
from core.data.filters import CHANNELS, NINE_CHANNELS
from core.data.recordings import LARGEST_INTEGER, Cutting, Recordings, Report, no_number
from core.data.signals import TWO_WAY
from core.data.source import Reader
from core.ground.errors import DataError

ACTIVITIES = "activity_labels.txt"
"""File of the UCI sets: the name of each activity's number."""


def parse_table(content: bytes, columns: int, where: str) -> NDArray[np.float64]:
    """Numbers of a whitespace-separated text, float64 (rows, columns).

    Raises DataError naming `where` and the line: an empty text, a row of another width, a word that
    is no number, NaN or infinity.
    """
    text = content.decode("latin-1")
    if not text.strip():
        raise DataError(
            f"{where}: expected rows of {columns} numbers, got an empty file; restore it from the"
            " original"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            table = np.loadtxt(io.StringIO(text), dtype=np.float64, comments=None, ndmin=2)
    except (ValueError, OverflowError, UserWarning) as problem:
        raise _first_problem(text, columns, where, str(problem)) from None
    if table.shape[1] != columns or not np.isfinite(table).all():
        raise _first_problem(text, columns, where, f"rows of {table.shape[1]} numbers")
    return table


def parse_integers(content: bytes, columns: int, where: str) -> NDArray[np.int32]:
    """Whole numbers from 0 to 2**31 - 1, int32 (rows, columns).

    Raises DataError as `parse_table` does.
    """
    table = parse_table(content, columns, where)
    wrong = (table != np.floor(table)) | (table < 0) | (table > LARGEST_INTEGER)
    if wrong.any():
        row, column = (int(index) for index in np.argwhere(wrong)[0])
        line = lines_of_rows(content)[row]
        raise DataError(
            f"{where}:{line}: expected a whole number from 0 to {LARGEST_INTEGER} in column"
            f" {column + 1}, got {table[row, column]:g}; correct the line"
        )
    return table.astype(np.int32)


def table_of(tree: Tree, name: str, columns: int) -> NDArray[np.float64]:
    """The numbers of a file of a set, as `parse_table` reads them."""
    return parse_table(tree.read(name), columns, f"{tree.where}: {name}")


def integers_of(tree: Tree, name: str, columns: int = 1) -> NDArray[np.int32]:
    """The whole numbers of a file of a set, as `parse_integers` reads them."""
    return parse_integers(tree.read(name), columns, f"{tree.where}: {name}")


def lines_of_rows(content: bytes) -> list[int]:
    """The one-based line of each row: blank lines are not rows."""
    return [
        number
        for number, line in enumerate(_lines(content.decode("latin-1")), start=1)
        if line.strip()
    ]


def activity_labels(tree: Tree) -> tuple[str, ...]:
    """Names of the activities, from lines such as `1 WALKING`, numbered from 1 without a gap.

    Raises DataError naming the wrong line.
    """
    labels: list[str] = []
    where = f"{tree.where}: {ACTIVITIES}"
    for number, line in enumerate(tree.read(ACTIVITIES).decode("latin-1").splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or fields[0] != str(len(labels) + 1) or fields[1] in labels:
            raise DataError(
                f"{where}:{number}: expected '{len(labels) + 1} NAME', got {line.strip()[:40]!r};"
                " correct the line"
            )
        labels.append(fields[1])
    if not labels:
        raise DataError(
            f"{where}: expected lines such as '1 WALKING', got none; restore it from the original"
        )
    return tuple(labels)


def _lines(text: str) -> list[str]:
    """Return lines as NumPy's parser sees them.

    str.splitlines also splits at vertical tabs and the like.
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _first_problem(text: str, columns: int, where: str, otherwise: str) -> DataError:
    for number, line in enumerate(_lines(text), start=1):
        fields = line.split()
        if fields and len(fields) != columns:
            return DataError(
                f"{where}:{number}: expected {columns} numbers, got {len(fields)}; a row was cut"
                " short or joined, restore the file from the original"
            )
        for word in fields:
            try:
                value = float(word.replace("_", "?"))
            except ValueError:
                return DataError(
                    f"{where}:{number}: expected a number, got {word[:40]!r}:"
                    f" {no_number(word) or 'correct the line'}"
                )
            if not math.isfinite(value):
                return DataError(
                    f"{where}:{number}: expected a finite number, got {word[:40]!r}; remove or"
                    " repair the row"
                )
    return DataError(
        f"{where}: expected rows of {columns} numbers, got {otherwise}; restore the file from the"
        " original"
    )


WINDOW_STEPS = 128
SETS = ("train", "test")


def deciding_files(names: Sequence[str]) -> tuple[str, ...]:
    """The files that decide the result, of all the archive's names."""
    fixed = {ACTIVITIES}
    for part in SETS:
        fixed |= {f"{part}/y_{part}.txt", f"{part}/subject_{part}.txt"}
        fixed |= {_signal(part, channel) for channel in CHANNELS}
    return tuple(name for name in names if name in fixed)


def read_uci_har(tree: Tree, cutting: Cutting, report: Report) -> Recordings:
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
    tree: Tree, part: str, activities: int, report: Report
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int32]]:
    name = f"{part}/y_{part}.txt"
    classes = integers_of(tree, name).ravel()
    beyond = np.flatnonzero((classes < 1) | (classes > activities))
    if beyond.size:
        row = int(beyond[0])
        line = lines_of_rows(tree.read(name))[row]
        raise DataError(
            f"{tree.where}: {name}:{line}: expected an activity from 1 to {activities}, got"
            f" {classes[row]}; correct the line"
        )
    subjects_name = f"{part}/subject_{part}.txt"
    subjects = integers_of(tree, subjects_name).ravel()
    _same_rows(tree, subjects_name, len(subjects), name, len(classes))
    windows = np.empty((len(classes), WINDOW_STEPS, len(CHANNELS)), dtype=np.float32)
    for index, channel in enumerate(CHANNELS):
        signal = _signal(part, channel)
        table = table_of(tree, signal, WINDOW_STEPS)
        _same_rows(tree, signal, len(table), name, len(classes))
        windows[:, :, index] = table
        report("reading", SETS.index(part) * len(CHANNELS) + index + 1, len(SETS) * len(CHANNELS))
    return windows, classes - 1, subjects


def _signal(part: str, channel: str) -> str:
    return f"{part}/Inertial Signals/{channel}_{part}.txt"


def _same_rows(tree: Tree, name: str, rows: int, reference: str, expected: int) -> None:
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
