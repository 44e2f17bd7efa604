"""What recordings hold, for a person: before windows are cut, and as a prepared data set.

Counts, people, a few windows, the first line that is wrong: plain values as JSON has them, and the
sections that a page and a terminal show of them.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from core.data.arrays import Integers, Numbers
from core.data.dataset import CLASSIFICATION, MULTILABEL, Dataset
from core.data.recordings import NO_SUBJECT
from core.data.signals import names_of
from core.web.sections import LinePlot, LinePlots, Note, Section, Table

MOST_GROUPS = 64
MOST_CLASSES = 64
MOST_CHANNELS = 64
MOST_STEPS = 4096
AT_ONCE = 4096
"""Examples whose channels are summed at a time."""
LONGEST_NAME = 48

Facts: TypeAlias = dict[str, Any]
"""Plain values by name, as `fab data show --json` has them."""


def portrait_of(dataset: Dataset, windows_per_class: int = 1) -> Facts:
    """Return the portrait of a data set, with `windows_per_class` windows of every class."""
    classes = class_of_each(dataset)
    groups, left_out = group_rows(dataset, classes)
    return {
        "name": dataset.name,
        "source": dataset.source,
        "sha256": dataset.source_sha256,
        "summary": dataset.summary(),
        "folder": str(dataset.folder),
        "held_out_by": dataset.held_out.by,
        "leak": dataset.held_out.leak,
        "note": dataset.held_out.note,
        "signals": dataset.signals.line() if dataset.holds_windows else "",
        "classes": class_rows(dataset),
        "groups": groups,
        "groups_left_out": left_out,
        "channels": channel_rows(dataset),
        "windows": [] if classes is None else drawn_windows(dataset, classes, windows_per_class),
    }


def class_of_each(dataset: Dataset) -> Integers | None:
    """Return the class of each example, (rows,); None where examples have none, or several."""
    if dataset.task == CLASSIFICATION and not dataset.targets.shape:
        return dataset.classes()
    return None


def class_rows(dataset: Dataset) -> list[Facts]:
    """Count the examples of each class or label at every position; none of a regression."""
    if dataset.task not in (CLASSIFICATION, MULTILABEL):
        return []
    values = np.asarray(dataset.target_values())
    part_values = values[: dataset.train_windows], values[dataset.train_windows :]
    if dataset.task == MULTILABEL:
        counts = [part.sum(axis=0, dtype=np.int64) for part in part_values]
    else:
        width = len(dataset.labels)
        counts = [np.bincount(part.reshape(-1), minlength=width) for part in part_values]
    rows = zip(dataset.labels, *(part.tolist() for part in counts), strict=True)
    named = [{"label": label, "train": train, "test": test} for label, train, test in rows]
    return named[:MOST_CLASSES]


def group_rows(dataset: Dataset, classes: Integers | None) -> tuple[list[Facts], int]:
    """Return the first groups with their parts, and how many more there are.

    A group is a person, a device or another one; there are none where the source names none.
    """
    subjects = dataset.subjects()
    names = dataset.held_out.groups
    rows = []
    group_numbers = np.unique(subjects[subjects != NO_SUBJECT])
    for number in group_numbers[:MOST_GROUPS].tolist():
        examples = np.flatnonzero(subjects == number)
        by_class = []
        if classes is not None:
            by_class = np.bincount(classes[examples], minlength=len(dataset.labels)).tolist()
        rows.append(
            {
                "number": number,
                "name": names[number] if number < len(names) else "",
                "part": "train" if examples[0] < dataset.train_windows else "test",
                "examples": len(examples),
                "by_class": by_class[:MOST_CLASSES],
            }
        )
    return rows, len(group_numbers) - len(rows)


class ChannelFigures:
    """Figures of each channel over readings that come some at a time."""

    def __init__(self, width: int) -> None:
        self._count = 0
        self._sums = np.zeros((2, width))
        self._least = np.full(width, np.inf)
        self._most = np.full(width, -np.inf)

    def add(self, values: Numbers) -> None:
        """Add readings, (n, channels), at least one."""
        self._count += len(values)
        self._sums += values.sum(axis=0), (values**2).sum(axis=0)
        self._least = np.minimum(self._least, values.min(axis=0))
        self._most = np.maximum(self._most, values.max(axis=0))

    def rows(self, names: Sequence[str], units: Sequence[str]) -> list[Facts]:
        """Return a row for each channel; none before the first reading.

        A unit that is not known is empty: values are then in the source's own.
        """
        if not self._count:
            return []
        means, squares = self._sums / self._count
        deviations = np.sqrt(np.maximum(0.0, squares - means**2))
        figures = np.stack([means, deviations, self._least, self._most], axis=1).tolist()
        heads = "name", "unit", "mean", "deviation", "least", "most"
        return [
            dict(zip(heads, (name, unit, *row), strict=True))
            for name, unit, row in zip(names, units, figures, strict=True)
        ]


def channel_rows(dataset: Dataset) -> list[Facts]:
    """Return the last axis of the training examples.

    It is empty where examples are single numbers or have many channels.
    """
    if not dataset.input_shape or dataset.input_shape[-1] > MOST_CHANNELS:
        return []
    width = dataset.input_shape[-1]
    windows = dataset.windows()[: dataset.train_windows]
    figures = ChannelFigures(width)
    for start in range(0, len(windows), AT_ONCE):
        figures.add(np.asarray(windows[start : start + AT_ONCE], np.float64).reshape(-1, width))
    units = dataset.signals.units or ("",) * width
    return figures.rows(names_of(dataset.signals, width), units)


def drawn_windows(dataset: Dataset, classes: Integers, windows_per_class: int) -> list[Facts]:
    """Return `windows_per_class` training windows of every class, evenly spaced among them.

    Values are (steps, channels). It is empty where examples are no windows.
    """
    shape = dataset.input_shape
    if len(shape) != 2 or shape[1] > MOST_CHANNELS or shape[0] > MOST_STEPS:
        return []
    windows = dataset.windows()
    drawings = []
    for number, label in enumerate(dataset.labels[:MOST_CLASSES]):
        row_numbers = np.flatnonzero(classes[: dataset.train_windows] == number)
        for turn in range(min(windows_per_class, len(row_numbers))):
            row = int(row_numbers[(2 * turn + 1) * len(row_numbers) // (2 * windows_per_class)])
            values = np.asarray(windows[row], np.float64).tolist()
            drawings.append({"label": label, "row": row, "values": values})
    return drawings


CHANNEL_COLUMNS = (
    ("channel", "{name}"),
    ("unit", "{unit}"),
    ("mean", "{mean:.3g}"),
    ("deviation", "{deviation:.3g}"),
    ("least", "{least:.3g}"),
    ("most", "{most:.3g}"),
)
LABEL_COLUMNS = (
    ("class", "{label}"),
    ("readings", "{readings:,}"),
    ("seconds", "{seconds:.1f}"),
    ("people", "{people}"),
)
SESSION_COLUMNS = (
    ("session", "{name}"),
    ("readings", "{readings:,}"),
    ("seconds", "{seconds:.1f}"),
    ("Hz", "{hertz:.4g}"),
    ("pauses", "{pauses:,}"),
    ("longest", "{longest_pause:.2f} s"),
    ("unordered", "{unordered:,}"),
)
CLASS_COLUMNS = (("class", "{label}"), ("train", "{train:,}"), ("test", "{test:,}"))


def recording_sections(facts: Facts) -> Iterator[Section]:
    """Yield what there is to show of recordings before windows are cut."""
    if facts["is_whole"]:
        read = "all"
    else:
        read = "the first"
    counts = f"{facts['title']}: recordings: {facts['files']:,}, readings: {facts['readings']:,}"
    yield Note(", ".join(filter(None, [f"{counts} ({read})", facts["left_out"]])))
    yield from (Note(problem, "LOOKS WRONG") for problem in facts["wrong"])
    yield from (Note(question, "ASKED") for question in facts["asked"])
    yield Table("Recorded", LABEL_COLUMNS, facts["labels"], "readings")
    sessions = [{**row, "name": _end_of(session_name(row))} for row in facts["sessions"]]
    left_out = facts["sessions_left_out"]
    yield Table("Sessions", SESSION_COLUMNS, sessions, rows_left_out=left_out)
    yield Table("Readings", CHANNEL_COLUMNS, facts["channels"])
    rates = [
        LinePlot(row["name"], np.array(row["rates"])[:, None], ["readings a second"], [""], 0.0)
        for row in sessions
        if row["rates"]
    ]
    yield LinePlots("Rate over time, in readings a second", rates)
    excerpts = [
        _drawing((_end_of(row["whose"]), f"{row['seconds']:.1f} s"), row, facts)
        for row in facts["excerpts"]
    ]
    yield LinePlots("Some seconds of each class", excerpts)


def window_sections(facts: Facts) -> Iterator[Section]:
    """Yield what there is to show of a prepared data set, which `portrait_of` returned."""
    yield Note(f"{facts['source']}: {facts['summary']}")
    yield Note(f"SHA-256 {facts['sha256']}")
    if facts["note"]:
        yield Note(facts["note"])
    if facts["leak"]:
        yield Note(facts["leak"], "LEAK")
    if facts["signals"]:
        yield Note(f"channels: {facts['signals']}")
    classes = [{**row, "count": row["train"] + row["test"]} for row in facts["classes"]]
    yield Table("Classes", CLASS_COLUMNS, classes, "count")
    columns = [
        (facts["held_out_by"] or "group", "{called}"),
        ("part", "{part}"),
        ("examples", "{examples:,}"),
    ]
    groups = [
        {**row, "called": f"{row['number']} {row['name']}".strip()} for row in facts["groups"]
    ]
    if groups and groups[0]["by_class"]:
        columns += [(row["label"], f"{{by_class[{at}]}}") for at, row in enumerate(classes)]
    yield Table("Groups", columns, groups, rows_left_out=facts["groups_left_out"])
    yield Table("Channels", CHANNEL_COLUMNS, facts["channels"])
    windows = [_drawing((f"training window {row['row']}",), row, facts) for row in facts["windows"]]
    yield LinePlots("Windows", windows)


def session_name(row: Facts) -> str:
    """Return person and session."""
    return f"{row['person']} {row['session']}".strip()


def _drawing(about: Sequence[str], row: Facts, facts: Facts) -> LinePlot:
    names, units = ([channel[key] for channel in facts["channels"]] for key in ("name", "unit"))
    title = ", ".join(filter(None, (row["label"], *about)))
    return LinePlot(title, np.asarray(row["values"]), names, units)


def _end_of(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    return f"...{name[3 - LONGEST_NAME :]}"
