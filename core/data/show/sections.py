"""What a page and a terminal show of recordings and of windows, in one order, and both drawings.

The page is one HTML file that loads nothing: tables, and every window as a drawing. A terminal has
tables, and blocks for drawn lines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from core.data.show import ChannelRow, Portrait, RecordingLook

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
    if summary.is_whole:
        read = "all"
    else:
        read = "the first"
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


MOST_DRAWN = 720
"""Steps of a drawing; of longer ones each second, third and so on is drawn."""
WIDTH = 360
HEIGHT = 90
COLOURS = (
    "#1f6feb",
    "#bf3989",
    "#1a7f37",
    "#9a6700",
    "#8250df",
    "#cf222e",
    "#0a7ea4",
    "#57606a",
    "#bc4c00",
)
STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:2rem"
    " auto;max-width:72rem;padding:0 "
    "1rem}table{border-collapse:collapse;margin:1rem 0}th,td{padding:.2rem"
    " .7rem;text-align:right;border-bottom:1px "
    "solid #8884}th:first-child,td:first-child{text-align:left}.leak{border-left:4px solid"
    " #cf222e;padding-left:1rem}"
    ".scroll{overflow-x:auto}.windows{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:0}"
    "code{word-break:break-all}"
)


MARKS = {"LEAK": "A leak", "LOOKS WRONG": "Looks wrong", "ASKED": "Asked"}


def page_of(portrait: Portrait | None, summary: RecordingLook | None = None) -> str:
    """Return the whole file; every text of the recordings is escaped."""
    title = "recordings"
    if summary is not None:
        title = summary.title
    if portrait is not None:
        title = portrait.name
    body = []
    for section in sections(portrait, summary):
        if isinstance(section, Note):
            body.append(_note_as_html(section))
        elif isinstance(section, Table):
            body.append(_table_as_html(section))
        else:
            body.append(_drawings_as_html(section))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport"'
        f' content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src'
        f" 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1>{''.join(body)}</html>\n"
    )


def _note_as_html(section: Note) -> str:
    if not section.mark:
        return f"<p>{escape(section.text)}</p>"
    return f'<p class="leak"><b>{MARKS[section.mark]}:</b> {escape(section.text)}</p>'


def _drawings_as_html(section: Drawings) -> str:
    """Return drawings below a title, with the names in the colours of their lines."""
    if not section.drawings:
        return ""
    names = [
        f'<b style="color:{COLOURS[at % len(COLOURS)]}">{escape(name)}</b>'
        for at, name in enumerate(section.drawings[0].names)
    ]
    figures = [figure for drawing in section.drawings for figure in _figures_as_html(drawing)]
    return (
        f"<h2>{section.title}</h2><p>{', '.join(names)}</p>"
        f'<div class="windows">{"".join(figures)}</div>'
    )


def _table_as_html(section: Table) -> str:
    if not section.rows:
        return ""
    title = section.title
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in section.heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in section.rows
    )
    more = ""
    if section.rows_left_out:
        more = f"<p>and {section.rows_left_out} more</p>"
    return (
        f'<h2>{title}</h2><div class="scroll" tabindex="0" role="region" aria-label="{title}:'
        f' table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'
    )


def _figures_as_html(drawing: LinesOverTime) -> Iterator[str]:
    """Yield a figure of the lines of each unit: one scale would hide the smaller ones."""
    values = drawing.values[:: -(-len(drawing.values) // MOST_DRAWN)]
    across = np.linspace(0, WIDTH, len(values))
    for unit in dict.fromkeys(drawing.units):
        places = [at for at, other in enumerate(drawing.units) if other == unit]
        least = float(values[:, places].min())
        if drawing.is_from_zero:
            least = 0.0
        most = float(values[:, places].max())
        up = HEIGHT - (values - least) / ((most - least) or 1.0) * HEIGHT
        lines = [
            f'<polyline fill="none" stroke="{COLOURS[at % len(COLOURS)]}" points="'
            f"{' '.join(f'{x:.1f},{y:.1f}' for x, y in zip(across, up[:, at], strict=True))}"
            f'"><title>{escape(drawing.names[at])}</title></polyline>'
            for at in places
        ]
        title = escape(", ".join(filter(None, (drawing.title, unit))))
        caption = f"{title}: {least:.3g} to {most:.3g}"
        yield (
            f'<figure><svg role="img" aria-label="{caption}" width="{WIDTH}" height="{HEIGHT}"'
            f' viewBox="0 0 {WIDTH} {HEIGHT}">{"".join(lines)}</svg>'
            f"<figcaption>{caption}</figcaption></figure>"
        )


BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN = "_.-~=+*#"
DRAWN_COLUMNS = 64
BAR_COLUMNS = 24


def terminal_lines(
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
            yield from _table_as_lines(section, marks[-1])
        else:
            yield from _drawings_as_lines(section.title, section.drawings, marks)
    if portrait is not None:
        yield ""
        yield f"prepared in {portrait.folder}"


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
    head, *rows = aligned_lines(section.heads, section.rows)
    yield head
    most = max(section.counts, default=1) or 1
    for row, count in zip(rows, section.counts or [0] * len(rows), strict=True):
        yield f"{row}  {mark * round(BAR_COLUMNS * count / most)}".rstrip()
    if section.rows_left_out:
        yield f"and {section.rows_left_out} more"


def _drawings_as_lines(title: str, drawings: Sequence[LinesOverTime], marks: str) -> Iterator[str]:
    """Yield a line for each channel of each drawing, and one for each drawing of a rate."""
    for at, drawing in enumerate(drawings):
        if drawing.is_from_zero:
            if not at:
                yield from ("", title)
            yield f"  {_line_of_column(drawing.values[:, 0], marks, 0.0)}  {drawing.title}"
            continue
        yield from ("", drawing.title)
        width = max(map(len, drawing.names))
        for name, column in zip(drawing.names, drawing.values.T, strict=True):
            yield f"  {name.ljust(width)} {_line_of_column(column, marks)}"


def _line_of_column(values: NDArray[np.float64], marks: str, floor: float = np.inf) -> str:
    return f"{sparkline(values.tolist(), marks, floor)}  {values.min():.3g} to {values.max():.3g}"
