"""Recordings as a format describes them become windows of one session and one label.

They are read once, some hundreds of lines at a time; the samples wait in a temporary file until it
is known who is held out for the test. Published sets are kinds that are names of formats.
"""

import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from core.data.archive import FileTree
from core.data.batch import Batch, Batches, Examples
from core.data.dataset import CLASSIFICATION
from core.data.described.description import RecordingFormat
from core.data.described.known_formats import BESIDE
from core.data.described.members import sheaves
from core.data.described.series import WindowChannels, channels_of_windows
from core.data.described.sessions import Cuts, Sessions
from core.data.filters import NINE_CHANNELS
from core.data.recordings import Cutting, Report, check_window
from core.data.signals import Signals
from core.data.source import Reader, open_set
from core.data.split import HeldOut
from core.data.uci_har import ACTIVITIES, activity_labels, integers_of
from core.data.windows import (
    IN_TIME,
    LastWindows,
    Pair,
    RandomWindows,
    WholeGroups,
    WindowCounts,
    chooser_of_test,
    refuse_other_groups,
)
from core.ground.errors import DataError


def read_described(path: Path, cutting: Cutting, report: Report) -> Examples:
    """Return the windows, float32 (window_steps, channels) in g, rad/s, uT or their own unit.

    Raises DataError naming file, line and remedy.
    """
    check_window(cutting)
    form = RecordingFormat.of_json(cutting.format)
    groups = ("user", "device" if form.as_recorded else "session")
    refuse_other_groups(path, cutting.split, cutting.groups, groups)
    if cutting.split == IN_TIME and cutting.label_share < 1.0:
        raise DataError(
            f"{path}: split {IN_TIME}: windows of two labels would share readings; set"
            " jobs.train.data.label_share to 1"
        )
    window_channels = channels_of_windows(path, form, cutting)
    cuts, recordings = gathered(path, form, cutting, window_channels, report)
    cut_sets = (CutSet(cuts, recordings.labels),)
    counted = counts_of(cut_sets, recordings.labels, groups)
    if not counted.rows:
        raise DataError(
            f"{path}: expected a stretch of {cutting.window_steps} samples of one session and"
            f" label, the longest has {cuts.longest}; set jobs.train.data.window_steps to that or"
            f" less, or look at what was read: {recordings.note(cuts.sparse)}"
        )
    test = chooser_of_test(path, counted, cutting, form.test_people)
    note = f"{test.held_out.note}; {recordings.note(cuts.sparse)}"
    examples = examples_of_cuts(cut_sets, counted, test, window_channels.signals)
    return replace(examples, held_out=replace(test.held_out, note=note))


def gathered(
    path: Path,
    form: RecordingFormat,
    cutting: Cutting,
    window_channels: WindowChannels,
    report: Report,
) -> tuple[Cuts, Sessions]:
    """Return where windows begin in all recordings, and what was read. Raises DataError."""
    recordings = Sessions(path, form, window_channels)
    recordings.read(sheaves(path, form), report)
    recordings.damage.refuse(form.bad_lines if cutting.bad_lines is None else cutting.bad_lines)
    recordings.judge.refuse(path)
    return Cuts(recordings.stretches(), cutting), recordings


@dataclass(frozen=True)
class CutSet:
    """The windows of one set, and the class of each of its labels; None of one left out.

    `name` is that of one set of several.
    """

    cuts: Cuts
    classes: Sequence[str | None]
    name: str = ""


def counts_of(
    cut_sets: Sequence[CutSet], classes: Sequence[str], kinds: Sequence[str]
) -> WindowCounts:
    """Count the windows of these classes. `kinds` are the groups that the recordings know."""
    windows = Counter[tuple[Pair, int]]()
    for cut_set in cut_sets:
        for (pair, label), count in cut_set.cuts.counts.items():
            word = cut_set.classes[label]
            if word in classes:
                windows[replace(pair, set=cut_set.name), classes.index(word)] += count
    return WindowCounts(windows, classes, kinds)


def examples_of_cuts(
    cut_sets: Sequence[CutSet],
    counted: WindowCounts,
    test: WholeGroups | RandomWindows | LastWindows,
    signals: Signals,
) -> Examples:
    """Return the counted windows, of which `test` says where each goes."""
    return Examples(
        Batches(_batches(cut_sets, counted, test), counted.rows),
        CLASSIFICATION,
        counted.names(),
        standardized=True,
        held_out=test.held_out,
        signals=signals,
    )


def _batches(
    cut_sets: Sequence[CutSet],
    counted: WindowCounts,
    test: WholeGroups | RandomWindows | LastWindows,
) -> Iterator[Batch]:
    places = {word: place for place, word in enumerate(counted.names())}
    for cut_set in cut_sets:
        for pair, label, windows in cut_set.cuts.windows():
            word = cut_set.classes[label]
            if word not in places:
                continue
            activity = counted.labels.index(word)
            group, in_test = test.of(replace(pair, set=cut_set.name), activity, len(windows))
            for is_test in (False, True):
                x = np.ascontiguousarray(windows[in_test == is_test])
                if len(x):
                    y = np.full(len(x), places[word], np.int32)
                    groups = np.full(len(x), group, np.int32)
                    yield Batch(x, y, groups, test=is_test)


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
    read = staticmethod(read_described)

    @staticmethod
    def recognizes(path: Path) -> bool:
        """Return whether it is a folder that says how its recordings are written."""
        return (path / BESIDE).is_file()


ACTIVITY_NAMES = (
    *("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING"),
    *("STAND_TO_SIT", "SIT_TO_STAND", "SIT_TO_LIE", "LIE_TO_SIT", "STAND_TO_LIE", "LIE_TO_STAND"),
)
TEST_PEOPLE = (2, 4, 9, 10, 12, 13, 18, 20, 24)
TEST_LIST = "Test/subject_id_test.txt"
HHAR_FILES = (
    *("Phones_accelerometer.csv", "Phones_gyroscope.csv"),
    *("Watch_accelerometer.csv", "Watch_gyroscope.csv"),
)
HHAR_COLUMNS = {"x", "y", "z", "user", "device", "gt"}
"""Names that any such file has, in any case."""


class Hapt(Reader):
    """The set HAPT, with the nine channels."""

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

    @staticmethod
    def deciding_files(names: Sequence[str]) -> tuple[str, ...]:
        """Return the files that decide the result: recordings, labels, and what is refused."""
        lists = (ACTIVITIES, TEST_LIST)
        return tuple(name for name in names if name.startswith(Hapt.marker) or name in lists)

    @staticmethod
    def read(path: Path, cutting: Cutting, report: Report) -> Examples:
        """Return the windows of the six activities. Raises DataError as `described` does."""
        kind_and_tree = open_set(path)
        if kind_and_tree is not None:
            _refuse_other_lists(kind_and_tree[1])
        settings = {name: getattr(cutting, name) for name in (*Hapt.settings, "format")}
        examples = read_described(path, Cutting(seed=0, nine_channels=True, **settings), report)
        held_out = examples.held_out
        return replace(
            examples,
            batches=_numbered(examples.batches, held_out.groups),
            held_out=HeldOut(note=held_out.note),
            signals=NINE_CHANNELS,
        )


def _refuse_other_lists(tree: FileTree) -> None:
    """Raise DataError where the set names other activities or test people than the published one.

    The format knows those of the published set alone, so another set would get wrong words.
    """
    names = tree.names()
    remedy = "describe a set of your own by a format.yaml with `like: hapt` (docs/data.md)"
    if ACTIVITIES in names:
        labels = activity_labels(tree)
        for number, (label, published) in enumerate(
            zip(labels, ACTIVITY_NAMES, strict=False), start=1
        ):
            if label != published:
                raise DataError(
                    f"{tree.where}: {ACTIVITIES}: expected '{number} {published}' as published, got"
                    f" {label:.60}; {remedy}"
                )
    if TEST_LIST in names:
        people = sorted(set(integers_of(tree, TEST_LIST).values()))
        if people != list(TEST_PEOPLE):
            raise DataError(
                f"{tree.where}: {TEST_LIST}: expected the people {list(TEST_PEOPLE)} as published,"
                f" got {people!s:.60}; {remedy}"
            )


def _numbered(batches: Iterator[Batch], people: Sequence[str]) -> Iterator[Batch]:
    """Return the batches with the set's own numbers of its people, such as 30 of `30`."""
    numbers = np.array(list(map(int, people)), np.int32)
    renumbered = (replace(batch, groups=numbers[batch.groups]) for batch in batches)
    return Batches(renumbered, getattr(batches, "rows", 0))


class Hhar(Reader):
    """The set HHAR, as it was recorded."""

    name = "hhar"
    accepted = "HHAR's Phones_accelerometer.csv"
    is_what = (
        "[Heterogeneity Activity Recognition](https://archive.ics.uci.edu/dataset/344):"
        " `Phones_accelerometer.csv` as published, or another file of its columns and activities"
    )
    windows_are_cut = "here: within one person, device and activity, (`window_steps`, 3)"
    marker = None
    suffix = None
    usual_names = (HHAR_FILES[0], "Activity recognition exp.zip")
    settings = ("window_steps", "window_stride", "groups", "split", "null_class", "bad_lines")

    @staticmethod
    def read(path: Path, cutting: Cutting, report: Report) -> Examples:
        """Return the windows in the file's own units. Raises DataError as `described` does."""
        settings = {name: getattr(cutting, name) for name in Hhar.settings}
        form = dict(cutting.format or {})
        if path.suffix.lower() == ".csv":
            form["text"] = {**form["text"], "separator": _line_of_names(path)[0]}
        if not cutting.null_class:
            label = form["label"]
            form["label"] = {**label, "words": {**label["words"], "null": None}}
        examples = read_described(path, Cutting(seed=0, format=form, **settings), report)
        return replace(examples, signals=Signals(examples.signals.channels))

    @staticmethod
    def recognizes(path: Path) -> bool:
        """Return whether it is a published file, a zip of it, or a .csv of its columns."""
        if not path.is_file() or path.name in HHAR_FILES:
            return path.is_file()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = map(PurePosixPath, archive.namelist())
                return any(name.name == HHAR_FILES[0] for name in names)
        return path.suffix.lower() == ".csv" and _line_of_names(path)[1] >= HHAR_COLUMNS


def _line_of_names(path: Path) -> tuple[str, set[str]]:
    """Return the separator of a file, by its first line, and that line's names in small letters."""
    with path.open("rb") as stream:
        begin = stream.readline(4096).decode("utf-8-sig", "replace")
    first = next(iter(begin.splitlines()), "")  # lines of an old Mac are one to readline()
    mark = max(",;\t|", key=first.count)
    return mark.replace("\t", "tab"), {name.strip(' "').lower() for name in first.split(mark)}
