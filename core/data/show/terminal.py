"""A portrait as lines for a terminal: tables, and a row of blocks for each channel of a window."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from core.data.show.cells import (
    CHANNEL_HEADS,
    CLASS_HEADS,
    LABEL_HEADS,
    SESSION_HEADS,
    channel_cells,
    class_cells,
    excerpt_name,
    group_cells,
    group_heads,
    label_cells,
    session_cells,
    summary_of,
)
from core.data.show.looks import RecordingLook
from core.data.show.portrait import Portrait

BLOCKS, PLAIN = "▁▂▃▄▅▆▇█", "_.-~=+*#"
DRAWN_COLUMNS = 64
BAR_COLUMNS = 24
MOST_RATES = 12


def lines(
    portrait: Portrait | None, look: RecordingLook | None = None, *, blocks: bool = True
) -> Iterator[str]:
    """Yield everything, a line at a time; without `blocks` in ASCII alone."""
    marks = PLAIN
    if blocks:
        marks = BLOCKS
    if look is not None:
        yield from _recordings(look, marks)
    if portrait is not None:
        yield from _windows(portrait, marks)


def _windows(portrait: Portrait, marks: str) -> Iterator[str]:
    yield f"{portrait.source}: {portrait.summary}"
    yield f"SHA-256 {portrait.sha256}; prepared in {portrait.folder}"
    if portrait.note:
        yield portrait.note
    if portrait.leak:
        yield f"LEAK: {portrait.leak}"
    if portrait.signals:
        yield f"channels: {portrait.signals}"
    if portrait.classes:
        yield ""
        counts = [row.train + row.test for row in portrait.classes]
        yield from _with_bars(CLASS_HEADS, class_cells(portrait), counts, marks[-1])
    if portrait.groups:
        yield ""
        yield from table(group_heads(portrait), group_cells(portrait))
        if portrait.groups_left_out:
            yield f"and {portrait.groups_left_out} more"
    if portrait.channels:
        yield ""
        yield from table(CHANNEL_HEADS, channel_cells(portrait.channels))
    names = [one.name for one in portrait.channels]
    for window in portrait.windows:
        yield ""
        yield f"{window.label}, training window {window.row}"
        yield from channel_lines(window.values, names, marks)


def _recordings(look: RecordingLook, marks: str) -> Iterator[str]:
    yield summary_of(look)
    yield from (f"LOOKS WRONG: {one}" for one in look.wrong)
    yield from (f"ASKED: {one}" for one in look.asked)
    if look.labels:
        yield ""
        counts = [one.readings for one in look.labels]
        yield from _with_bars(LABEL_HEADS, label_cells(look), counts, marks[-1])
    yield ""
    yield from table(SESSION_HEADS, session_cells(look))
    if look.sessions_left_out:
        yield f"and {look.sessions_left_out} more"
    yield ""
    yield from table(CHANNEL_HEADS, channel_cells(look.channels))
    timed = [one for one in look.sessions if one.rates][:MOST_RATES]
    if timed:
        yield ""
        yield "readings a second, over the time of each session"
    for one in timed:
        drawn = sparkline([0.0, *one.rates], marks, len(one.rates) + 1)[1:]
        least = min(one.rates)
        yield f"  {drawn}  {least:.3g} to {max(one.rates):.3g}"
    names = [one.name for one in look.channels]
    for excerpt in look.excerpts:
        yield ""
        yield excerpt_name(excerpt)
        yield from channel_lines(excerpt.values, names, marks)
    yield ""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns of equal width; the first one to the left, the others to the right."""
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    for row in (heads, *rows):
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        yield "  ".join(cells).rstrip()


def sparkline(values: Sequence[float], marks: str, columns: int = DRAWN_COLUMNS) -> str:
    """Return a row of marks, each for the mean of its share of the values.

    The first of `marks` stands for the least mean, the last for the greatest.
    """
    array = np.asarray(values, np.float64)
    bounds = np.linspace(0, len(array), min(columns, len(array)) + 1).astype(int)
    means = np.array([array[first:last].mean() for first, last in pairwise(bounds)])
    span = float(means.max() - means.min())
    if span <= 0:
        places = np.zeros(len(means), int)
    else:
        places = ((means - means.min()) / span * (len(marks) - 1)).round()
    return "".join(marks[int(place)] for place in places)


def _with_bars(
    heads: Sequence[str], cells: Sequence[Sequence[str]], counts: Sequence[int], mark: str
) -> Iterator[str]:
    """Yield a table with a bar behind each row."""
    head, *rows = table(heads, cells)
    yield head
    most = max(1, *counts)
    for row, count in zip(rows, counts, strict=True):
        yield f"{row}  {mark * round(BAR_COLUMNS * count / most)}"


def channel_lines(
    rows: Sequence[Sequence[float]], names: Sequence[str], marks: str
) -> Iterator[str]:
    """Yield a line for each channel of some readings or samples."""
    values = np.asarray(rows)
    width = max(map(len, names))
    for at, name in enumerate(names):
        column = values[:, at]
        yield (
            f"  {name.ljust(width)} {sparkline(column.tolist(), marks)}  {column.min():.3g} to"
            f" {column.max():.3g}"
        )
