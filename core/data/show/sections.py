"""What a page and a terminal show of recordings and of windows, in one order, drawn by neither."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.data.show.looks import RecordingLook
from core.data.show.portrait import ChannelRow, Portrait

CHANNEL_HEADS = ("channel", "unit", "mean", "deviation", "least", "most")
LABEL_HEADS = ("class", "readings", "seconds", "people")
SESSION_HEADS = ("session", "readings", "seconds", "Hz", "pauses", "longest", "unordered")
LONGEST_NAME = 48


@dataclass(frozen=True)
class Note:
    """A line; one with a mark, such as LEAK, needs an eye."""

    text: str
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of text; a bar is as long as its row's count, where rows have counts."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    counts: Sequence[int] = ()
    rows_left_out: int = 0


@dataclass(frozen=True)
class LinesOverTime:
    """Lines over time: values (steps, lines), with the name and the unit of each line."""

    title: str
    values: NDArray[np.float64]
    names: Sequence[str]
    units: Sequence[str]
    is_from_zero: bool = False


@dataclass(frozen=True)
class Drawings:
    """Several drawings of the same lines."""

    title: str
    drawings: Sequence[LinesOverTime]


Section = Note | Table | Drawings


def sections(portrait: Portrait | None, summary: RecordingLook | None) -> Iterator[Section]:
    """Yield what there is to show: recordings first, then their windows."""
    if summary is not None:
        yield from _recordings(summary)
    if portrait is not None:
        yield from _windows(portrait)


def _recordings(summary: RecordingLook) -> Iterator[Section]:
    read = "all" if summary.is_whole else "the first"
    counts = [
        f"{summary.title}: recordings: {summary.files:,}",
        f"readings: {summary.readings:,} ({read})",
    ]
    yield Note(", ".join(filter(None, [*counts, summary.left_out])))
    yield from (Note(problem, "LOOKS WRONG") for problem in summary.wrong)
    yield from (Note(question, "ASKED") for question in summary.asked)
    labels = [
        (row.label, f"{row.readings:,}", f"{row.seconds:.1f}", str(row.people))
        for row in summary.labels
    ]
    yield Table("Recorded", LABEL_HEADS, labels, [row.readings for row in summary.labels])
    sessions = [
        (
            _end_of(row.name),
            f"{row.readings:,}",
            f"{row.seconds:.1f}",
            f"{row.hertz:.4g}",
            f"{row.pauses:,}",
            f"{row.longest_pause:.2f} s",
            f"{row.unordered:,}",
        )
        for row in summary.sessions
    ]
    yield Table("Sessions", SESSION_HEADS, sessions, rows_left_out=summary.sessions_left_out)
    yield _channels("Readings", summary.channels)
    rates = [
        LinesOverTime(
            _end_of(row.name), np.array(row.rates)[:, None], ["readings a second"], [""], True
        )
        for row in summary.sessions
        if row.rates
    ]
    yield Drawings("Rate over time, in readings a second", rates)
    excerpts = [
        _drawing(
            (row.label, _end_of(row.whose), f"{row.seconds:.1f} s"), row.values, summary.channels
        )
        for row in summary.excerpts
    ]
    yield Drawings("Some seconds of each class", excerpts)


def _windows(portrait: Portrait) -> Iterator[Section]:
    yield Note(f"{portrait.source}: {portrait.summary}")
    yield Note(f"SHA-256 {portrait.sha256}")
    if portrait.note:
        yield Note(portrait.note)
    if portrait.leak:
        yield Note(portrait.leak, "LEAK")
    if portrait.signals:
        yield Note(f"channels: {portrait.signals}")
    classes = [(row.label, f"{row.train:,}", f"{row.test:,}") for row in portrait.classes]
    counts = [row.train + row.test for row in portrait.classes]
    yield Table("Classes", ("class", "train", "test"), classes, counts)
    heads = [portrait.held_out_by or "group", "part", "examples"]
    if portrait.groups and portrait.groups[0].by_class:
        heads += [row.label for row in portrait.classes]
    groups = [
        (f"{row.number} {row.name}".strip(), row.part, f"{row.examples:,}", *map(str, row.by_class))
        for row in portrait.groups
    ]
    yield Table("Groups", heads, groups, rows_left_out=portrait.groups_left_out)
    yield _channels("Channels", portrait.channels)
    windows = [
        _drawing((row.label, f"training window {row.row}"), row.values, portrait.channels)
        for row in portrait.windows
    ]
    yield Drawings("Windows", windows)


def _channels(title: str, channels: Sequence[ChannelRow]) -> Table:
    rows = [
        (
            row.name,
            row.unit,
            *(f"{value:.3g}" for value in (row.mean, row.deviation, row.least, row.most)),
        )
        for row in channels
    ]
    return Table(title, CHANNEL_HEADS, rows)


def _drawing(
    title: Sequence[str], values: Sequence[Sequence[float]], channels: Sequence[ChannelRow]
) -> LinesOverTime:
    return LinesOverTime(
        ", ".join(filter(None, title)),
        np.asarray(values),
        [row.name for row in channels],
        [row.unit for row in channels],
    )


def _end_of(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    return f"...{name[3 - LONGEST_NAME :]}"
