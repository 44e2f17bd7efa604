"""What there is to show as lines for a terminal: tables, and blocks for drawn lines."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from core.data.show.looks import RecordingLook
from core.data.show.portrait import Portrait
from core.data.show.sections import LinesOverTime, Note, Table, sections

BLOCKS, PLAIN = "▁▂▃▄▅▆▇█", "_.-~=+*#"
DRAWN_COLUMNS = 64
BAR_COLUMNS = 24


def lines(
    portrait: Portrait | None, summary: RecordingLook | None = None, *, blocks: bool = True
) -> Iterator[str]:
    """Yield everything, a line at a time; without `blocks` in ASCII alone."""
    marks = PLAIN
    if blocks:
        marks = BLOCKS
    for section in sections(portrait, summary):
        if isinstance(section, Note):
            yield ": ".join(filter(None, (section.mark, section.text)))
        elif isinstance(section, Table):
            yield from _with_bars(section, marks[-1])
        else:
            yield from _drawn(section.title, section.drawings, marks)
    if portrait is not None:
        yield ""
        yield f"prepared in {portrait.folder}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield columns of equal width; the first one to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for first, *right_cells in (heads, *rows):
        cells = map(str.rjust, right_cells, widths[1:])
        yield "  ".join([first.ljust(widths[0]), *cells]).rstrip()


def sparkline(values: Sequence[float], marks: str, floor: float = np.inf) -> str:
    """Return a row of marks, each for the mean of its share of the values.

    The first of `marks` stands for the least mean or the floor, the last for the greatest mean.
    """
    array = np.asarray(values, np.float64)
    bounds = np.linspace(0, len(array), min(DRAWN_COLUMNS, len(array)) + 1).astype(int)
    means = np.array([array[first:last].mean() for first, last in pairwise(bounds)])
    heights = means - min(means.min(), floor)
    places = (heights / (heights.max() or 1.0) * (len(marks) - 1)).round()
    return "".join(marks[int(place)] for place in places)


def _with_bars(section: Table, mark: str) -> Iterator[str]:
    """Yield a table with a bar behind each row that has a count; nothing of one without rows."""
    if not section.rows:
        return
    yield ""
    head, *rows = table(section.heads, section.rows)
    yield head
    most = max(section.counts, default=1) or 1
    for row, count in zip(rows, section.counts or [0] * len(rows), strict=True):
        yield f"{row}  {mark * round(BAR_COLUMNS * count / most)}".rstrip()
    if section.rows_left_out:
        yield f"and {section.rows_left_out} more"


def _drawn(title: str, drawings: Sequence[LinesOverTime], marks: str) -> Iterator[str]:
    """Yield a line for each channel of each drawing, and one for each drawing of a rate."""
    for at, drawing in enumerate(drawings):
        if drawing.is_from_zero:
            if not at:
                yield from ("", title)
            yield f"  {_line(drawing.values[:, 0], marks, 0.0)}  {drawing.title}"
            continue
        yield from ("", drawing.title)
        width = max(map(len, drawing.names))
        for name, column in zip(drawing.names, drawing.values.T, strict=True):
            yield f"  {name.ljust(width)} {_line(column, marks)}"


def _line(values: NDArray[np.float64], marks: str, floor: float = np.inf) -> str:
    return f"{sparkline(values.tolist(), marks, floor)}  {values.min():.3g} to {values.max():.3g}"
