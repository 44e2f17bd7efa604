"""A portrait as one HTML file that loads nothing: tables, and every window as a drawing."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

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
    session_name,
    summary_of,
)
from core.data.show.looks import RecordingLook
from core.data.show.portrait import ChannelRow, Portrait

RATE = {0: "readings a second", 1: "none"}
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


def page(portrait: Portrait | None, look: RecordingLook | None = None) -> str:
    """Return the whole file; every text of the recordings is escaped."""
    parts: list[str] = []
    title = "recordings"
    if look is not None:
        title = look.title
        parts += _recordings(look)
    if portrait is not None:
        title = portrait.name
        parts += _windows(portrait)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport"'
        f' content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src'
        f" 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1>{''.join(parts)}</html>\n"
    )


def _windows(portrait: Portrait) -> Iterator[str]:
    yield (
        f"<p>{escape(portrait.summary)}, from <code>{escape(portrait.source)}</code>, SHA-256 "
        f"<code>{escape(portrait.sha256)}</code></p>"
    )
    if portrait.note:
        yield f"<p>{escape(portrait.note)}</p>"
    if portrait.signals:
        yield f"<p>Channels: {escape(portrait.signals)}</p>"
    if portrait.leak:
        yield f'<p class="leak"><b>A leak:</b> {escape(portrait.leak)}</p>'
    yield _table("Classes", CLASS_HEADS, class_cells(portrait))
    yield _table("Groups", group_heads(portrait), group_cells(portrait))
    yield _table("Channels", CHANNEL_HEADS, channel_cells(portrait.channels))
    drawings = [
        drawing
        for window in portrait.windows
        for drawing in _by_unit(
            f"{window.label}, training window {window.row}", window.values, portrait.channels
        )
    ]
    yield _drawings("Windows", drawings, portrait.channels)


def _recordings(look: RecordingLook) -> Iterator[str]:
    yield f"<p>{escape(summary_of(look))}</p>"
    yield from (f'<p class="leak"><b>Looks wrong:</b> {escape(one)}</p>' for one in look.wrong)
    yield from (f"<p><b>Asked:</b> {escape(one)}</p>" for one in look.asked)
    yield _table("Recorded", LABEL_HEADS, label_cells(look))
    yield _table("Sessions", SESSION_HEADS, session_cells(look))
    yield _table("Readings", CHANNEL_HEADS, channel_cells(look.channels))
    rates = [
        _drawing(f"{session_name(one)}: readings a second", _above_zero(one.rates), RATE)
        for one in look.sessions
        if one.rates
    ]
    yield _drawings("Rate over time", rates)
    excerpts = [
        drawing
        for one in look.excerpts
        for drawing in _by_unit(excerpt_name(one), one.values, look.channels)
    ]
    yield _drawings("Some seconds of each class", excerpts, look.channels)


def _above_zero(values: Sequence[float]) -> NDArray[np.float64]:
    """Return values beside a line of zeros, (n, 2)."""
    return np.stack([np.asarray(values), np.zeros(len(values))], axis=1)


def _drawings(title: str, drawings: Sequence[str], channels: Sequence[ChannelRow] = ()) -> str:
    """Return drawings below a title, with the channels in the colours of their lines."""
    if not drawings:
        return ""
    marks = [
        f'<b style="color:{COLOURS[at % len(COLOURS)]}">{escape(channel.name)}</b>'
        for at, channel in enumerate(channels)
    ]
    lines = f"<p>{', '.join(marks)}</p>"
    return f'<h2>{title}</h2>{lines}<div class="windows">{"".join(drawings)}</div>'


def _by_unit(
    title: str, rows: Sequence[Sequence[float]], channels: Sequence[ChannelRow]
) -> Iterator[str]:
    """Yield a figure of the channels of each unit: one scale would hide the smaller ones."""
    values = np.asarray(rows)
    for unit in dict.fromkeys(channel.unit for channel in channels):
        places = [at for at, channel in enumerate(channels) if channel.unit == unit]
        names = {at: channels[at].name for at in places}
        yield _drawing(", ".join(filter(None, (title, unit))), values, names)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return (
        f'<h2>{title}</h2><div class="scroll" tabindex="0" role="region" aria-label="{title}:'
        f' table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _drawing(title: str, values: NDArray[np.float64], names: Mapping[int, str]) -> str:
    """Return a figure of some channels over time, of (steps, channels), on one scale."""
    values = values[:: -(-len(values) // MOST_DRAWN)]
    least = float(values[:, list(names)].min())
    most = float(values[:, list(names)].max())
    span = (most - least) or 1.0
    across = np.linspace(0, WIDTH, len(values))
    lines = []
    for at, name in names.items():
        up = HEIGHT - (values[:, at] - least) / span * HEIGHT
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, up, strict=True))
        lines.append(
            f'<polyline fill="none" stroke="{COLOURS[at % len(COLOURS)]}"'
            f' points="{points}"><title>{escape(name)}</title></polyline>'
        )
    words = f"{escape(title)}: {least:.3g} to {most:.3g}"
    return (
        f'<figure><svg role="img" aria-label="{words}" width="{WIDTH}" height="{HEIGHT}" viewBox="0'
        f' 0 {WIDTH} {HEIGHT}">{"".join(lines)}</svg><figcaption>{words}</figcaption></figure>'
    )
