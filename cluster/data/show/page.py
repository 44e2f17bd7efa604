"""A portrait as one HTML file that loads nothing: tables, and every window as a drawing."""

from html import escape

import numpy as np

from cluster.data.show.portrait import Drawn, Portrait, channel_names

WIDTH, HEIGHT = 360, 90
COLOURS = ("#1f6feb", "#bf3989", "#1a7f37", "#9a6700", "#8250df", "#cf222e", "#0a7ea4", "#57606a", "#bc4c00")
STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 "
    "1rem}table{border-collapse:collapse;margin:1rem 0}th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px "
    "solid #8884}th:first-child,td:first-child{text-align:left}.leak{border-left:4px solid #cf222e;padding-left:1rem}"
    ".scroll{overflow-x:auto}.windows{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:0}code{word-break:break-all}"
)


def page(portrait: Portrait) -> str:
    """The whole file; every text of the recordings is escaped."""
    leak = f'<p class="leak"><b>A leak:</b> {escape(portrait.leak)}</p>' if portrait.leak else ""
    note = f"<p>{escape(portrait.note)}</p>" if portrait.note else ""
    labels = [row.label for row in portrait.classes]
    grouped = bool(portrait.groups and portrait.groups[0].by_class)
    parts = [
        _table("Classes", ["class", "train", "test"], [[r.label, f"{r.train:,}", f"{r.test:,}"]
                                                       for r in portrait.classes]),
        _table("Groups", [portrait.held_out_by or "group", "part", "examples", *(labels if grouped else [])],
               [[f"{r.number} {r.name}".strip(), r.part, f"{r.examples:,}", *map(str, r.by_class)]
                for r in portrait.groups]),
        _table("Channels", ["channel", "mean", "deviation", "least", "most"],
               [[r.name, *(f"{value:.3g}" for value in (r.mean, r.deviation, r.least, r.most))]
                for r in portrait.channels]),
    ]  # fmt: skip
    drawings = "".join(_drawing(window) for window in portrait.windows)
    windows = f'<h2>Windows</h2><div class="windows">{drawings}</div>' if drawings else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(portrait.name)}</title><style>{STYLE}</style><h1>{escape(portrait.name)}</h1>"
        f"<p>{escape(portrait.summary)}, from <code>{escape(portrait.source)}</code>, SHA-256 "
        f"<code>{escape(portrait.sha256)}</code></p>{note}{leak}{''.join(parts)}{windows}</html>\n"
    )


def _table(title: str, heads: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<h2>{title}</h2><div class="scroll" tabindex="0" role="region" aria-label="{title}: table"><table><thead>'
        f"<tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _drawing(window: Drawn) -> str:
    values = np.asarray(window.values)
    least, most = float(values.min()), float(values.max())
    span = (most - least) or 1.0
    across = np.linspace(0, WIDTH, len(values))
    lines = []
    for at, name in enumerate(channel_names(values.shape[1])):
        up = HEIGHT - (values[:, at] - least) / span * HEIGHT
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, up, strict=True))
        lines.append(
            f'<polyline fill="none" stroke="{COLOURS[at % len(COLOURS)]}" points="{points}"><title>{escape(name)}'
            f"</title></polyline>"
        )
    words = f"{escape(window.label)}, training window {window.row}: {least:.3g} to {most:.3g}"
    return (
        f'<figure><svg role="img" aria-label="{words}" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} '
        f'{HEIGHT}">{"".join(lines)}</svg><figcaption>{words}</figcaption></figure>'
    )
