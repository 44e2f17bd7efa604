"""What a page and a terminal show: notes, tables and drawings in one order, and both renderers.

The page is one HTML file that loads nothing: `sections.html` has tables, and every drawing as SVG.
A terminal has tables, and blocks for drawn lines.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray


@dataclass(frozen=True)
class Note:
    """A line; one with a mark, such as LEAK, needs an eye."""

    kind: ClassVar[str] = "note"
    text: str
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """Rows by columns: each has a head, and the format of its cell in the row's own names.

    bar: the name of the row's number that a terminal draws behind it; empty for none.
    """

    kind: ClassVar[str] = "table"
    title: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Mapping[str, Any]]
    bar: str = ""
    rows_left_out: int = 0

    @property
    def heads(self) -> list[str]:
        """The heads of the columns."""
        return [head for head, _ in self.columns]

    @property
    def cells(self) -> list[list[str]]:
        """The text of each cell, row by row."""
        return [[cell.format_map(row) for _, cell in self.columns] for row in self.rows]


@dataclass(frozen=True)
class LinePlot:
    """Lines over time: values (steps, lines), with the name and the unit of each line.

    floor: what the scale begins with where no value is less.
    """

    title: str
    values: NDArray[np.float64]
    names: Sequence[str]
    units: Sequence[str]
    floor: float = np.inf

    def figures(self) -> Iterator[dict[str, Any]]:
        """Yield a figure of the lines of each unit: one scale would hide the smaller ones."""
        values = self.values[:: -(-len(self.values) // MOST_DRAWN)]
        across = np.linspace(0, WIDTH, len(values))
        for unit in dict.fromkeys(self.units):
            places = [at for at, other in enumerate(self.units) if other == unit]
            least = min(float(values[:, places].min()), self.floor)
            most = float(values[:, places].max())
            up = HEIGHT - (values - least) / ((most - least) or 1.0) * HEIGHT
            lines = {
                at: " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, up[:, at], strict=True))
                for at in places
            }
            title = ", ".join(filter(None, (self.title, unit)))
            yield {"caption": f"{title}: {least:.3g} to {most:.3g}", "lines": lines}


@dataclass(frozen=True)
class LinePlots:
    """Several drawings of the same lines."""

    kind: ClassVar[str] = "drawings"
    title: str
    drawings: Sequence[LinePlot]


Section = Note | Table | LinePlots

MOST_DRAWN = 720
"""Steps of a drawing; of longer ones each second, third and so on is drawn."""
WIDTH = 360
HEIGHT = 90
BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN = "_.-~=+*#"
DRAWN_COLUMNS = 64
BAR_COLUMNS = 24


def page_of(title: str, sections: Iterable[Section]) -> str:
    """Return the whole file; every text is escaped."""
    text = Path(__file__).with_name("sections.html").read_text(encoding="utf-8")
    pages = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    size = {"width": WIDTH, "height": HEIGHT}
    return pages.from_string(text).render(title=title, sections=list(sections), size=size)


def terminal_lines(sections: Iterable[Section], *, blocks: bool = True) -> Iterator[str]:
    """Yield everything, a line at a time; without `blocks` in ASCII alone."""
    if blocks:
        marks = BLOCKS
    else:
        marks = PLAIN
    for section in sections:
        if isinstance(section, Note):
            yield ": ".join(filter(None, (section.mark, section.text)))
        elif isinstance(section, Table):
            yield from _table_as_lines(section, marks[-1])
        else:
            yield from _drawings_as_lines(section, marks)


def aligned_lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
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


def _table_as_lines(section: Table, mark: str) -> Iterator[str]:
    """Yield a table with a bar behind each row that has a count; nothing of one without rows."""
    if not section.rows:
        return
    yield ""
    head, *lines = aligned_lines(section.heads, section.cells)
    yield head
    counts = [row[section.bar] if section.bar else 0 for row in section.rows]
    most = max(counts) or 1
    for line, count in zip(lines, counts, strict=True):
        yield f"{line}  {mark * round(BAR_COLUMNS * count / most)}".rstrip()
    if section.rows_left_out:
        yield f"and {section.rows_left_out} more"


def _drawings_as_lines(section: LinePlots, marks: str) -> Iterator[str]:
    """Yield a line for each line of each drawing; those of one line stand below one title."""
    is_below_one = all(len(drawing.names) == 1 for drawing in section.drawings)
    if is_below_one and section.drawings:
        yield from ("", section.title)
    for drawing in section.drawings:
        if not is_below_one:
            yield from ("", drawing.title)
        width = max(map(len, drawing.names))
        for name, values in zip(drawing.names, drawing.values.T, strict=True):
            shape = sparkline(values.tolist(), marks, drawing.floor)
            drawn = f"{shape}  {values.min():.3g} to {values.max():.3g}"
            if is_below_one:
                yield f"  {drawn}  {drawing.title}"
            else:
                yield f"  {name.ljust(width)} {drawn}"
