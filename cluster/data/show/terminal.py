"""A portrait as lines for a terminal: tables, and a row of blocks for each channel of a window."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from cluster.data.show.portrait import Drawn, Portrait, channel_names

BLOCKS, PLAIN = "▁▂▃▄▅▆▇█", "_.-~=+*#"
DRAWN_COLUMNS, BAR_COLUMNS = 64, 24


def lines(portrait: Portrait, *, blocks: bool = True) -> Iterator[str]:
    """Everything, a line at a time; without `blocks` in ASCII alone."""
    marks = BLOCKS if blocks else PLAIN
    yield f"{portrait.source}: {portrait.summary}"
    yield f"SHA-256 {portrait.sha256}; prepared in {portrait.folder}"
    if portrait.note:
        yield portrait.note
    if portrait.leak:
        yield f"LEAK: {portrait.leak}"
    if portrait.classes:
        yield ""
        yield from _classes(portrait, marks[-1])
    if portrait.groups:
        yield ""
        yield from _groups(portrait)
    if portrait.channels:
        yield ""
        rows = [[one.name, *(f"{value:.3g}" for value in (one.mean, one.deviation, one.least, one.most))]
                for one in portrait.channels]  # fmt: skip
        yield from table(["channel", "mean", "deviation", "least", "most"], rows)
    for window in portrait.windows:
        yield ""
        yield from _window(window, marks)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns of equal width; the first one to the left, the others to the right."""
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    for row in (heads, *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "  ".join(cells).rstrip()


def sparkline(values: Sequence[float], marks: str, columns: int = DRAWN_COLUMNS) -> str:
    """A row of marks, each the mean of its share of the values, from the least to the most of them."""
    array = np.asarray(values, np.float64)
    bounds = np.linspace(0, len(array), min(columns, len(array)) + 1).astype(int)
    means = np.array([array[first:last].mean() for first, last in pairwise(bounds)])
    span = float(means.max() - means.min())
    places = np.zeros(len(means), int) if span <= 0 else ((means - means.min()) / span * (len(marks) - 1)).round()
    return "".join(marks[int(place)] for place in places)


def _classes(portrait: Portrait, mark: str) -> Iterator[str]:
    most = max(1, *(row.train + row.test for row in portrait.classes))
    rows = [[row.label, f"{row.train:,}", f"{row.test:,}"] for row in portrait.classes]
    drawn = list(table(["class", "train", "test"], rows))
    yield drawn[0]
    for line, row in zip(drawn[1:], portrait.classes, strict=True):
        yield f"{line}  {mark * round(BAR_COLUMNS * (row.train + row.test) / most)}"


def _groups(portrait: Portrait) -> Iterator[str]:
    labels = [row.label for row in portrait.classes]
    rows = [
        [f"{row.number} {row.name}".strip(), row.part, f"{row.examples:,}", *map(str, row.by_class)]
        for row in portrait.groups
    ]
    heads = [portrait.held_out_by or "group", "part", "examples", *(labels if portrait.groups[0].by_class else [])]
    yield from table(heads, rows)
    if portrait.groups_left_out:
        yield f"and {portrait.groups_left_out} more"


def _window(window: Drawn, marks: str) -> Iterator[str]:
    yield f"{window.label}, training window {window.row}"
    values = np.asarray(window.values)
    names = channel_names(values.shape[1])
    width = max(map(len, names))
    for at, name in enumerate(names):
        column = values[:, at]
        yield f"  {name.ljust(width)} {sparkline(column.tolist(), marks)}  {column.min():.3g} to {column.max():.3g}"
