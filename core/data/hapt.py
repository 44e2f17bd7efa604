"""Raw recordings of the UCI set "Human Activities and Postural Transitions" (HAPT).

They are read in their published layout.

`RawData/acc_expEE_userSS.txt` and `gyro_...` hold one reading of x, y, z a line at 50 Hz, in g and
rad/s; `RawData/labels.txt` holds `experiment subject activity first last`, rows one-based and
inclusive; `Train/subject_id_train.txt` and `Test/subject_id_test.txt` say who belongs to which set.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from core.data.archive import Tree
from core.data.filters import NINE_CHANNELS, SHORTEST_RECORDING_STEPS, channels_by
from core.data.reader import Reader
from core.data.recordings import Cutting, Recordings, Report, check_window, cut
from core.data.table import ACTIVITIES, activity_labels, integers_of, lines_of_rows, table_of
from core.errors import DataError

TRANSITION = "_TO_"
"""In the name of an activity: a change of posture (STAND_TO_SIT, published as 7 to 12), a few
seconds long."""
SEGMENTS = "RawData/labels.txt"
TRAIN_SUBJECTS = "Train/subject_id_train.txt"
TEST_SUBJECTS = "Test/subject_id_test.txt"
RECORDING = re.compile(r"RawData/acc_exp(\d+)_user(\d+)\.txt")


@dataclass(frozen=True)
class Segment:
    """A labelled stretch: rows `[start, stop)` of a recording, zero-based.

    `line` is its line in labels.txt.
    """

    experiment: int
    subject: int
    activity: int
    start: int
    stop: int
    line: int


def wanted(names: Sequence[str]) -> tuple[str, ...]:
    """The files that decide the result, of all the archive's names."""
    fixed = {SEGMENTS, ACTIVITIES, TRAIN_SUBJECTS, TEST_SUBJECTS}
    return tuple(
        name for name in names if name in fixed or re.fullmatch(r"RawData/(acc|gyro)_.*\.txt", name)
    )


def read(
    tree: Tree, cutting: Cutting, report: Report, *, all_activities: bool = False
) -> Recordings:
    """Return the windows of all activities but the transitions between postures.

    Training rows are first, in the order of labels.txt.

    `all_activities` keeps the transitions. Raises DataError naming file, line and remedy.
    """
    check_window(cutting)
    labels = activity_labels(tree)
    kept = [
        number for number, label in enumerate(labels) if all_activities or TRANSITION not in label
    ]
    recordings = _recordings(tree, read_segments(tree, len(labels)))
    train = _training_subjects(tree, recordings)
    pieces: dict[bool, list[tuple[NDArray[np.float32], Segment]]] = {True: [], False: []}
    for done, ((experiment, subject), segments) in enumerate(recordings.items(), start=1):
        samples = read_recording(tree, experiment, subject, cutting.filters)
        for segment in segments:
            if segment.stop > len(samples):
                raise DataError(
                    f"{tree.where}: {SEGMENTS}:{segment.line}: ends at row {segment.stop} of a"
                    f" recording of {len(samples)} rows (experiment {experiment}, user {subject});"
                    " correct the line or the recording"
                )
            if segment.activity in kept:
                windows = cut(samples[segment.start : segment.stop], cutting)
                pieces[subject in train].append((windows, segment))
        report("reading", done, len(recordings))
    _refuse_overlaps(
        [segment for own in recordings.values() for segment in own], f"{tree.where}: {SEGMENTS}"
    )
    ordered = pieces[True] + pieces[False]
    counts = [len(windows) for windows, _ in ordered]
    if not sum(counts):
        raise DataError(
            f"{tree.where}: {SEGMENTS}: no labelled segment is {cutting.window_steps} steps long;"
            " use shorter windows"
        )
    return Recordings(
        windows=np.concatenate([windows for windows, _ in ordered]),
        classes=np.repeat(
            np.array([kept.index(segment.activity) for _, segment in ordered], dtype=np.int32),
            counts,
        ),
        subjects=np.repeat(
            np.array([segment.subject for _, segment in ordered], dtype=np.int32), counts
        ),
        train_windows=sum(len(windows) for windows, _ in pieces[True]),
        labels=tuple(labels[number] for number in kept),
        signals=NINE_CHANNELS,
    )


def read_segments(tree: Tree, activities: int) -> tuple[Segment, ...]:
    """The labelled stretches, activity zero-based.

    Raises DataError on a line that cannot be one.
    """
    where = f"{tree.where}: {SEGMENTS}"
    table = integers_of(tree, SEGMENTS, 5).tolist()
    segments = []
    for line, (experiment, subject, activity, first, last) in zip(
        lines_of_rows(tree.read(SEGMENTS)), table, strict=True
    ):
        if not 1 <= activity <= activities:
            raise DataError(
                f"{where}:{line}: expected an activity from 1 to {activities}, got {activity};"
                " correct the line"
            )
        if not 1 <= first <= last:
            raise DataError(
                f"{where}:{line}: expected rows first <= last from 1, got {first} to {last};"
                " correct the line"
            )
        segments.append(Segment(experiment, subject, activity - 1, first - 1, last, line))
    return tuple(segments)


def _refuse_overlaps(segments: Sequence[Segment], where: str) -> None:
    """A reading has one activity."""
    ordered = sorted(segments, key=lambda one: (one.experiment, one.subject, one.start))
    for before, after in pairwise(ordered):
        same = (before.experiment, before.subject) == (after.experiment, after.subject)
        if same and after.start < before.stop:
            raise DataError(
                f"{where}:{after.line}: begins at row {after.start + 1}, which line {before.line}"
                " labels too; give each row one activity"
            )


def read_recording(tree: Tree, experiment: int, subject: int, filters: str) -> NDArray[np.float32]:
    """Channels, float32 (steps, 9), of one recording, filtered `two-way` or `causal`."""
    names = [
        f"RawData/{sensor}_exp{experiment:02d}_user{subject:02d}.txt" for sensor in ("acc", "gyro")
    ]
    acceleration, angular_velocity = (table_of(tree, name, 3) for name in names)
    if len(acceleration) != len(angular_velocity):
        raise DataError(
            f"{tree.where}: {names[1]}: expected the {len(acceleration)} rows of {names[0]}, got "
            f"{len(angular_velocity)}; one of the two was cut short, restore both"
        )
    if len(acceleration) < SHORTEST_RECORDING_STEPS:
        raise DataError(
            f"{tree.where}: {names[0]}: expected at least {SHORTEST_RECORDING_STEPS} rows, got"
            f" {len(acceleration)}; remove the recording and its labels"
        )
    return channels_by(filters, acceleration, angular_velocity)


def _recordings(tree: Tree, segments: Sequence[Segment]) -> dict[tuple[int, int], list[Segment]]:
    grouped: dict[tuple[int, int], list[Segment]] = {}
    for segment in segments:
        grouped.setdefault((segment.experiment, segment.subject), []).append(segment)
    for name in tree.names():
        found = RECORDING.fullmatch(name)
        if found and (int(found[1]), int(found[2])) not in grouped:
            raise DataError(
                f"{tree.where}: {SEGMENTS}: nothing labels {name}; the labels were cut short,"
                " restore them (or remove the recording)"
            )
    return grouped


def _training_subjects(
    tree: Tree, recordings: Mapping[tuple[int, int], Sequence[Segment]]
) -> frozenset[int]:
    train, test = (
        frozenset(integers_of(tree, name).ravel().tolist())
        for name in (TRAIN_SUBJECTS, TEST_SUBJECTS)
    )
    if train & test:
        raise DataError(
            f"{tree.where}: {TEST_SUBJECTS}: subject {min(train & test)} is also in"
            f" {TRAIN_SUBJECTS}; keep it in one"
        )
    for (_, subject), segments in recordings.items():
        if subject not in train | test:
            raise DataError(
                f"{tree.where}: {SEGMENTS}:{segments[0].line}: subject {subject} is in neither"
                f" {TRAIN_SUBJECTS} nor {TEST_SUBJECTS}; add it to one"
            )
    return train


class Hapt(Reader):
    """The set HAPT."""

    name = "hapt"
    accepted = "the HAPT set as a zip or folder"
    is_what = (
        "the raw recordings of [Human Activities and Postural"
        " Transitions](https://archive.ics.uci.edu/dataset/341), zip or folder as published"
    )
    windows_are_cut = "here, any `window_steps` and `window_stride`"
    marker = "RawData/"
    suffix = None
    usual_names = ("HAPT Data Set.zip", "HAPT Data Set")
    settings = ("window_steps", "window_stride", "filters")
    wanted = staticmethod(wanted)
    read = staticmethod(read)
