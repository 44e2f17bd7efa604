"""A portrait as one HTML file that loads nothing: tables, and every window as a drawing."""

from collections.abc import Iterator
from html import escape

import numpy as np

from core.data.show.looks import RecordingLook
from core.data.show.portrait import Portrait
from core.data.show.sections import Drawings, LinesOverTime, Note, Table, sections

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


def page(portrait: Portrait | None, summary: RecordingLook | None = None) -> str:
    """Return the whole file; every text of the recordings is escaped."""
    title = "recordings"
    if summary is not None:
        title = summary.title
    if portrait is not None:
        title = portrait.name
    body = []
    for section in sections(portrait, summary):
        if isinstance(section, Note):
            body.append(_note(section))
        elif isinstance(section, Table):
            body.append(_table(section))
        else:
            body.append(_drawings(section))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport"'
        f' content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src'
        f" 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1>{''.join(body)}</html>\n"
    )


def _note(section: Note) -> str:
    if not section.mark:
        return f"<p>{escape(section.text)}</p>"
    return f'<p class="leak"><b>{MARKS[section.mark]}:</b> {escape(section.text)}</p>'


def _drawings(section: Drawings) -> str:
    """Return drawings below a title, with the names in the colours of their lines."""
    if not section.drawings:
        return ""
    names = [
        f'<b style="color:{COLOURS[at % len(COLOURS)]}">{escape(name)}</b>'
        for at, name in enumerate(section.drawings[0].names)
    ]
    figures = [figure for drawing in section.drawings for figure in _figures(drawing)]
    return (
        f"<h2>{section.title}</h2><p>{', '.join(names)}</p>"
        f'<div class="windows">{"".join(figures)}</div>'
    )


def _table(section: Table) -> str:
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


def _figures(drawing: LinesOverTime) -> Iterator[str]:
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
