"""The classic "UCI HAR Dataset": windows of 128 steps that are already cut.

A set has nine files of inertial signals.

`train/Inertial Signals/body_acc_x_train.txt` and its eight companions hold one window a line, 128
readings at 50 Hz; `train/y_train.txt` and `train/subject_train.txt` hold one number a line; the
same again for `test`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.data.archive import Tree
from core.data.filters import CHANNELS, NINE_CHANNELS
from core.data.reader import Reader
from core.data.recordings import Cutting, Recordings, Report
from core.data.signals import TWO_WAY
from core.data.table import ACTIVITIES, activity_labels, integers_of, lines_of_rows, table_of
from core.ground.errors import DataError

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
