"""Recordings as a format describes them become windows of one session and one label.

They are read once, some hundreds of lines at a time; the samples wait in a temporary file until it
is known who is held out for the test.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from core.data.archive import FolderTree
from core.data.batch import Batch, Batches, Examples
from core.data.dataset import CLASSIFICATION
from core.data.described.channels import MadeChannels, made_channels
from core.data.described.cuts import Cuts
from core.data.described.description import RecordingFormat, plain
from core.data.described.known_formats import BESIDE
from core.data.described.members import sheaves
from core.data.described.sessions import Sessions
from core.data.recordings import Cutting, Report, check_window
from core.data.source import Reader
from core.data.windows import (
    IN_TIME,
    LastWindows,
    RandomWindows,
    WholeGroups,
    WindowCounts,
    chooser_of_test,
    refuse_other_groups,
)
from core.ground.errors import DataError


def read(opened: Path | FolderTree, cutting: Cutting, report: Report) -> Examples:
    """Return the windows, float32 (window_steps, channels) in g, rad/s, uT or their own unit.

    Raises DataError naming file, line and remedy.
    """
    path = Path(opened.where) if isinstance(opened, FolderTree) else opened
    check_window(cutting)
    form = RecordingFormat.model_validate(plain(cutting.format))
    groups = ("user", "device" if form.as_recorded else "session")
    refuse_other_groups(path, cutting.split, cutting.groups, groups)
    if cutting.split == IN_TIME and cutting.label_share < 1.0:
        raise DataError(
            f"{path}: split {IN_TIME}: windows of two labels would share readings; set"
            " jobs.train.data.label_share to 1"
        )
    window_channels = made_channels(path, form, cutting)
    cuts, recordings = gathered(path, form, cutting, window_channels, report)
    counted = WindowCounts(cuts.counts, recordings.labels, groups)
    if not counted.rows:
        raise DataError(
            f"{path}: expected a stretch of {cutting.window_steps} samples of one session and"
            f" label, the longest has {cuts.longest}; set jobs.train.data.window_steps to that or"
            f" less, or look at what was read: {recordings.note(cuts.sparse)}"
        )
    test = chooser_of_test(path, counted, cutting, form.test_people)
    note = f"{test.held_out.note}; {recordings.note(cuts.sparse)}"
    return Examples(
        Batches(_batches(cuts, counted, test), counted.rows),
        CLASSIFICATION,
        counted.names(),
        standardized=True,
        held_out=replace(test.held_out, note=note),
        signals=window_channels.signals,
    )


def gathered(
    path: Path,
    form: RecordingFormat,
    cutting: Cutting,
    window_channels: MadeChannels,
    report: Report,
) -> tuple[Cuts, Sessions]:
    """Return where windows begin in all recordings, and what was read. Raises DataError."""
    recordings = Sessions(path, form, window_channels)
    recordings.take(sheaves(path, form), report)
    recordings.damage.refuse(form.bad_lines if cutting.bad_lines is None else cutting.bad_lines)
    recordings.judge.refuse(path)
    return Cuts(recordings.stretches(), cutting), recordings


def _batches(
    cuts: Cuts, counted: WindowCounts, groups: WholeGroups | RandomWindows | LastWindows
) -> Iterator[Batch]:
    classes = {activity: place for place, activity in enumerate(counted.activities())}
    for pair, activity, windows in cuts.windows():
        group, test = groups.of(pair, activity, len(windows))
        for is_test in (False, True):
            x = windows[test == is_test]
            if len(x):
                numbers = np.full(len(x), group, np.int32)
                yield Batch(
                    np.ascontiguousarray(x),
                    np.full(len(x), classes[activity], np.int32),
                    numbers,
                    test=is_test,
                )


class Described(Reader):
    """Recordings in a person's own files, as a format describes them."""

    name = "described"
    accepted = f"a folder with a {BESIDE}"
    is_what = (
        "[anybody's recordings](recordings.md): labelled time series in text, JSON or archives of"
        " them, which `format` or a `format.yaml` in their folder describes"
    )
    windows_are_cut = "here: within one session and label, resampled to one rate"
    marker = None
    suffix = None
    usual_names = ()
    settings = (
        "window_steps",
        "window_stride",
        "groups",
        "split",
        "format",
        "sampling_hz",
        "label_share",
        "bad_lines",
        "nine_channels",
        "filters",
    )
    read = staticmethod(read)

    @staticmethod
    def recognizes(path: Path) -> bool:
        """Return whether it is a folder that says how its recordings are written."""
        return (path / BESIDE).is_file()
