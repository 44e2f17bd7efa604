"""What recordings hold, for a person: before windows are cut, and as a prepared data set.

Counts, people, a few windows, the first line that is wrong: plain values, which nothing here draws.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.dataset import CLASSIFICATION, MULTILABEL, Dataset
from core.data.recordings import NO_SUBJECT
from core.data.signals import names_of

MOST_GROUPS = 64
MOST_CLASSES = 64
MOST_CHANNELS = 64
MOST_STEPS = 4096
AT_ONCE = 4096
"""Examples whose channels are summed at a time."""


@dataclass(frozen=True)
class LabelCounts:
    """One class or label: how many examples have it."""

    label: str
    train: int
    test: int


@dataclass(frozen=True)
class GroupRow:
    """One person, device or other group.

    It has its number, its name if there is one, its part, and its examples by class.
    """

    number: int
    name: str
    part: str
    examples: int
    by_class: tuple[int, ...]


@dataclass(frozen=True)
class ChannelRow:
    """One channel over all training examples or readings; without a known unit in the source's."""

    name: str
    unit: str
    mean: float
    deviation: float
    least: float
    most: float


@dataclass(frozen=True)
class DrawnWindow:
    """One training window of a class, (steps, channels) as nested lists.

    It is from the middle of those there are.
    """

    label: str
    row: int
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Portrait:
    """Everything that is shown of one data set."""

    name: str
    source: str
    sha256: str
    summary: str
    folder: str
    held_out_by: str
    leak: str
    note: str
    signals: str
    """The channels of windows, in words; empty for other examples."""
    classes: tuple[LabelCounts, ...]
    groups: tuple[GroupRow, ...]
    groups_left_out: int
    channels: tuple[ChannelRow, ...]
    windows: tuple[DrawnWindow, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def portrait_of(dataset: Dataset, windows_per_class: int = 1) -> Portrait:
    """Return the portrait of a data set, with `windows_per_class` windows of every class."""
    classes = class_of_each(dataset)
    groups, left_out = group_rows(dataset, classes)
    return Portrait(
        name=dataset.name,
        source=dataset.source,
        sha256=dataset.source_sha256,
        summary=dataset.summary(),
        folder=str(dataset.folder),
        held_out_by=dataset.held_out.by,
        leak=dataset.held_out.leak,
        note=dataset.held_out.note,
        signals=dataset.signals.line() if dataset.holds_windows else "",
        classes=class_rows(dataset),
        groups=groups,
        groups_left_out=left_out,
        channels=channel_rows(dataset),
        windows=drawn_windows(dataset, classes, windows_per_class) if classes is not None else (),
    )


def class_of_each(dataset: Dataset) -> NDArray[np.int32] | None:
    """Return the class of each example, (rows,); None where examples have none, or several."""
    if dataset.task == CLASSIFICATION and not dataset.targets.shape:
        return dataset.classes()
    return None


def class_rows(dataset: Dataset) -> tuple[LabelCounts, ...]:
    """Count the examples of each class or label at every position; none of a regression."""
    if dataset.task not in (CLASSIFICATION, MULTILABEL):
        return ()
    values = np.asarray(dataset.target_values())
    part_values = values[: dataset.train_windows], values[dataset.train_windows :]
    if dataset.task == MULTILABEL:
        counts = [part.sum(axis=0, dtype=np.int64) for part in part_values]
    else:
        width = len(dataset.labels)
        counts = [np.bincount(part.reshape(-1), minlength=width) for part in part_values]
    rows = zip(dataset.labels, *(part.tolist() for part in counts), strict=True)
    return tuple(LabelCounts(*row) for row in rows)[:MOST_CLASSES]


def group_rows(
    dataset: Dataset, classes: NDArray[np.int32] | None
) -> tuple[tuple[GroupRow, ...], int]:
    """Return the first groups with their parts, and how many more there are.

    There are none where the source names no groups.
    """
    subjects = dataset.subjects()
    names = dataset.held_out.groups
    rows = []
    group_numbers = np.unique(subjects[subjects != NO_SUBJECT])
    for number in group_numbers[:MOST_GROUPS].tolist():
        examples = np.flatnonzero(subjects == number)
        if classes is None:
            by_class = ()
        else:
            by_class = np.bincount(classes[examples], minlength=len(dataset.labels)).tolist()
        rows.append(
            GroupRow(
                number=number,
                name=names[number] if number < len(names) else "",
                part="train" if examples[0] < dataset.train_windows else "test",
                examples=len(examples),
                by_class=tuple(by_class)[:MOST_CLASSES],
            )
        )
    return tuple(rows), len(group_numbers) - len(rows)


class ChannelFigures:
    """Figures of each channel over readings that come some at a time."""

    def __init__(self, width: int) -> None:
        self._count = 0
        self._sums = np.zeros((2, width))
        self._least = np.full(width, np.inf)
        self._most = np.full(width, -np.inf)

    def add(self, values: NDArray[np.float64]) -> None:
        """Add readings, (n, channels), at least one."""
        self._count += len(values)
        self._sums += values.sum(axis=0), (values**2).sum(axis=0)
        self._least = np.minimum(self._least, values.min(axis=0))
        self._most = np.maximum(self._most, values.max(axis=0))

    def rows(self, names: Sequence[str], units: Sequence[str]) -> tuple[ChannelRow, ...]:
        """Return a row for each channel; none before the first reading."""
        if not self._count:
            return ()
        means, squares = self._sums / self._count
        deviations = np.sqrt(np.maximum(0.0, squares - means**2))
        figures = np.stack([means, deviations, self._least, self._most], axis=1).tolist()
        return tuple(
            ChannelRow(name, unit, *row)
            for name, unit, row in zip(names, units, figures, strict=True)
        )


def channel_rows(dataset: Dataset) -> tuple[ChannelRow, ...]:
    """Return the last axis of the training examples.

    It is empty where examples are single numbers or have many channels.
    """
    if not dataset.input_shape or dataset.input_shape[-1] > MOST_CHANNELS:
        return ()
    width = dataset.input_shape[-1]
    windows = dataset.windows()[: dataset.train_windows]
    figures = ChannelFigures(width)
    for start in range(0, len(windows), AT_ONCE):
        figures.add(np.asarray(windows[start : start + AT_ONCE], np.float64).reshape(-1, width))
    units = dataset.signals.units or ("",) * width
    return figures.rows(names_of(dataset.signals, width), units)


def drawn_windows(
    dataset: Dataset, classes: NDArray[np.int32], windows_per_class: int
) -> tuple[DrawnWindow, ...]:
    """Return `windows_per_class` training windows of every class, evenly spaced among them.

    It is empty where examples are no windows.
    """
    shape = dataset.input_shape
    if len(shape) != 2 or shape[1] > MOST_CHANNELS or shape[0] > MOST_STEPS:
        return ()
    windows = dataset.windows()
    drawings = []
    for number, label in enumerate(dataset.labels[:MOST_CLASSES]):
        row_numbers = np.flatnonzero(classes[: dataset.train_windows] == number)
        for turn in range(min(windows_per_class, len(row_numbers))):
            row = int(row_numbers[(2 * turn + 1) * len(row_numbers) // (2 * windows_per_class)])
            values = np.asarray(windows[row], np.float64)
            drawings.append(DrawnWindow(label, row, tuple(tuple(step) for step in values.tolist())))
    return tuple(drawings)


@dataclass(frozen=True)
class SessionLook:
    """One session: its readings a second over its time, in some equal parts.

    pauses: how often no reading came for longer than windows bridge; longest_pause in seconds.
    unordered: readings with the time of the one before, or an older one.
    """

    person: str
    session: str
    readings: int
    seconds: float
    hertz: float
    pauses: int
    longest_pause: float
    unordered: int
    rates: tuple[float, ...]

    @property
    def name(self) -> str:
        """Person and session."""
        return f"{self.person} {self.session}".strip()


@dataclass(frozen=True)
class LabelLook:
    """One class: its readings, about how long they took, and of how many people they are."""

    label: str
    readings: int
    seconds: float
    people: int


@dataclass(frozen=True)
class Excerpt:
    """The first seconds of a class: (readings, channels), in the units of windows."""

    label: str
    whose: str
    seconds: float
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class RecordingLook:
    """All that is shown of recordings."""

    title: str
    channels: tuple[ChannelRow, ...]
    files: int
    readings: int
    is_whole: bool
    sessions: tuple[SessionLook, ...]
    sessions_left_out: int
    labels: tuple[LabelLook, ...]
    excerpts: tuple[Excerpt, ...]
    left_out: str
    wrong: tuple[str, ...]
    asked: tuple[str, ...]
    """Questions that only a person answers."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
