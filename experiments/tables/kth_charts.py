"""KTH's figures beside our trainings of its network: rows of pages/kth.md, and two charts.

The charts, theirs above ours, are SVG files of docs/images: training time and accuracy by updates.
Each panel has three groups of bars, by updates, and a place in each group for every setup, so that
a setup stands at one place and in one colour in all panels. A training that has not reached a
number of updates has no bar there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from experiments.tables.measured import (
    NONE,
    NOT_YET,
    clock,
    of_processor,
    paper_table,
    processors_of,
    results,
    table,
    with_legend,
)

KTH = "kth.json"
KTH_SAMPLE = "kth-sample.json"
NO_SUCH_MACHINE: Mapping[str, str] = {"local-gpu": "no GPU here"}
"""Setups of theirs that no machine here has."""
MODES = {"single": "one process"}
LEVELS = ("0.50", "0.60")
"""Accuracies to which the time is shown."""


def kth_table(
    measurements: Mapping[str, Any], splits: Mapping[str, str]
) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows: accuracy at each number of updates, and when half was reached.

    `splits` are the words for what was held out, none where that is the same for all.
    """
    trained_so_far = measurements.get("rows", ())
    marks = [str(mark) for mark in measurements.get("summary", {}).get("marks", ())]
    marks = [mark for mark in marks if any(row["at"].get(mark) for row in trained_so_far)]
    heads = [
        *(["split"] if splits else []),
        "mode",
        "workers",
        "rate",
        *(f"{int(mark):,} updates" for mark in marks),
        *(f"to {level}" for level in LEVELS),
        "best so far",
        "trained",
    ]
    rows = []
    for row in trained_so_far:
        if splits:
            cells = [splits[row["split"]]]
        else:
            cells = []
        cells += [
            MODES.get(row["mode"], row["mode"]),
            str(row["workers"] or NONE),
            f"{row['learning_rate']:g}",
        ]
        cells += [_share_at(row["at"].get(mark)) for mark in marks]
        for level in LEVELS:
            updates = row["updates_to"][level]
            seconds = row["seconds_to"][level]
            cells.append(NONE if updates is None else f"{updates:,} in {seconds:.0f} s")
        best = max(
            (point for point in row["curve"] if point["accuracy"] is not None),
            key=lambda point: point["accuracy"],
        )
        last = row["curve"][-1]
        cells += [
            f"{best['accuracy']:.3f} at {best['updates']:,}",
            f"{last['updates']:,} in {last['seconds']:.0f} s",
        ]
        rows.append(cells)
    return heads, rows


def _share_at(point: Mapping[str, Any] | None) -> str:
    if point is None or point["accuracy"] is None:
        return NONE
    return f"{point['accuracy']:.3f}"


def kth_charts() -> str:
    """KTH's bars; ours by setup and updates, on either split."""
    measurements = results(KTH)
    our_rows = {
        (row["theirs"], row["split"]): row for row in measurements.get("rows", ()) if row["theirs"]
    }
    heads = [
        "KTH's setup",
        "updates",
        "KTH: accuracy",
        "time",
        "ours, random windows: accuracy",
        "time",
        "ours, other people: accuracy",
        "time",
    ]
    rows = []
    for row in paper_table("kth-charts").rows:
        setup = row["setup"]
        cells = [setup, f"{row['steps']:,}", f"{row['test_accuracy']:.2f}", f"{row['hours']:.1f} h"]
        for split in ("random", "people"):
            our_row = our_rows.get((setup, split), {"at": {}})
            point = our_row["at"].get(str(row["steps"]))
            if point is None or point["accuracy"] is None:
                cells += [NO_SUCH_MACHINE.get(setup, NOT_YET), NONE]
            else:
                time = of_processor(clock(point["seconds"]), processors_of(measurements, [our_row]))
                cells += [f"**{point['accuracy']:.4f}**", time]
        rows.append(cells)
    return with_legend(table(heads, rows), "KTH's network")


def kth_rows() -> str:
    """Every training of KTH's network on invented recordings that was begun."""
    return table(*kth_table(results(KTH), {"random": "at random", "people": "by people"}))


def kth_sample() -> str:
    """Return the trainings on the published readings, which one person made with one phone."""
    return table(*kth_table(results(KTH_SAMPLE), {}))


def kth_model() -> str:
    """KTH's network and data, as the slides have them."""
    rows = [
        [
            row["item"],
            "not given" if row["value"] is None else f"{row['value']:,} {row['unit']}".strip(),
        ]
        for row in paper_table("kth-model").rows
    ]
    return table(["item", "KTH"], rows)


MARKS = (2_000, 5_000, 10_000)
CHARTS: Mapping[str, str] = {
    "kth-time": "Training time by updates",
    "kth-accuracy": "Accuracy by updates",
}
"""Titles by the name of the file."""
WIDTH = 760
LEFT = 56
PANEL = 130
TOP = 96
GAP = 62
"""Pixels of the picture: its width, the axis's margin, the height of a panel's bars, the legend,
between panels."""
SLOT = 36
BAR = 28
GROUP = 232
HEADROOM = 1.15
"""Length of the axis over that of the highest bar, for the figure that stands on it."""
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 15px; } .panel { font-weight: 600; }
.figure { font-size: 11px; text-anchor: middle; }
.tick { text-anchor: end; } .updates { text-anchor: middle; }
.page { fill: #ffffff; } .line { stroke: #8b949e; stroke-width: 1; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .page { fill: #161b22; } }
"""


@dataclass(frozen=True)
class Setup:
    """A place in each group: its title, its colour, and the rows that fill it."""

    title: str
    colour: str
    kth_setup: str | None
    mode: str | None = None
    learning_rate: float | None = None


SETUPS = (
    Setup("one process, rate 0.0025", "#3b8bd6", "local-1-cpu", "single", 0.0025),
    Setup("one GPU, rate 0.0025", "#8b949e", "local-gpu"),
    Setup("async, rate 0.0025", "#e08a00", None, "async", 0.0025),
    Setup("async, rate 0.00025", "#d1603d", "spark-8-exec-async", "async", 0.00025),
    Setup("sync, rate 0.0025", "#1f9d74", None, "sync", 0.0025),
    Setup("sync, rate 0.5", "#b45fa5", "spark-8-exec-sync", "sync", 0.5),
)
"""Colours that stand out on both backgrounds, after Okabe and Ito's for the colour-blind."""

Bars = Mapping[tuple[str, int], float]
"""Seconds, or a share, by the title of the setup and the updates."""


def kth_bars(chart: str) -> Bars:
    """Return KTH's bars as they were read off."""
    titles = {setup.kth_setup: setup.title for setup in SETUPS if setup.kth_setup}
    if chart == "kth-time":
        column, unit = ("hours", 3600.0)
    else:
        column, unit = ("test_accuracy", 1.0)
    return {
        (titles[row["setup"]], row["steps"]): unit * row[column]
        for row in paper_table("kth-charts").rows
    }


def our_bars(chart: str, split: str, rows: Sequence[Mapping[str, Any]]) -> Bars:
    """Return what our trainings on this split have reached."""
    key = "seconds" if chart == "kth-time" else "accuracy"
    bars = dict[tuple[str, int], float]()
    for row in rows:
        for setup in SETUPS:
            if (row["split"], row["mode"], row["learning_rate"]) == (
                split,
                setup.mode,
                setup.learning_rate,
            ):
                for mark in MARKS:
                    point = row["at"].get(str(mark))
                    if point is not None and point[key] is not None:
                        bars[setup.title, mark] = float(point[key])
    return bars


def chart(name: str) -> str:
    """One of the two as the text of an SVG file."""
    rows = results(KTH).get("rows", ())
    panels = [
        ("KTH: windows at random", kth_bars(name)),
        ("Ours: windows at random", our_bars(name, "random", rows)),
        ("Ours: other people", our_bars(name, "people", rows)),
    ]
    our_highest = max((value for _, bars in panels[1:] for value in bars.values()), default=60.0)
    height = TOP + len(panels) * (PANEL + GAP)
    elements = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" role="img" aria-label="{escape(alt(name))}">'
        ),
        f"<title>{CHARTS[name]}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
        f'<text class="title" x="{LEFT}" y="26">{CHARTS[name]}</text>',
        *_legend(),
    ]
    for place, (title, bars) in enumerate(panels):
        if place == 0:
            highest = max(bars.values(), default=1.0)
        else:
            highest = our_highest
        unit = unit_of(name, highest)
        elements += _panel(
            TOP + place * (PANEL + GAP), title, bars, highest if unit.seconds else 1.0, unit
        )
    return "\n".join([*elements, "</svg>", ""])


@dataclass(frozen=True)
class Unit:
    """An axis's label, its seconds (0 where it is no time) and the digits of a figure."""

    label: str
    seconds: float
    digits: int

    def figure(self, value: float) -> str:
        """A value as its bar says it."""
        return f"{value / (self.seconds or 1.0):.{self.digits}f}"


def unit_of(chart: str, highest: float) -> Unit:
    """Return hours for theirs, what suits the longest for ours."""
    if chart != "kth-time":
        return Unit("accuracy", 0.0, 2)
    if highest >= 2 * 3600:
        return Unit("hours", 3600.0, 1)
    if highest >= 120:
        return Unit("minutes", 60.0, 1)
    return Unit("seconds", 1.0, 0)


def _legend() -> list[str]:
    elements = []
    columns = 3
    for place, setup in enumerate(SETUPS):
        x = LEFT + place % columns * 220
        y = 42 + place // columns * 20
        elements += [
            f'<rect x="{x}" y="{y}" width="12" height="12" fill="{setup.colour}"/>',
            f'<text x="{x + 18}" y="{y + 11}">{setup.title}</text>',
        ]
    return elements


def _panel(top: int, title: str, bars: Bars, highest: float, unit: Unit) -> list[str]:
    scale = PANEL / (highest * HEADROOM)
    base = top + 24 + PANEL
    elements = [
        f'<text class="panel" x="{LEFT}" y="{top + 14}">{title}, {unit.label}</text>',
        f'<line class="line" x1="{LEFT}" y1="{base}" x2="{WIDTH - 8}" y2="{base}"/>',
        f'<text class="tick" x="{LEFT - 6}" y="{base + 4}">0</text>',
        (
            f'<text class="tick" x="{LEFT - 6}"'
            f' y="{base - highest * scale + 4:.1f}">{unit.figure(highest)}</text>'
        ),
    ]
    for group, mark in enumerate(MARKS):
        group_x = LEFT + 8 + group * GROUP
        middle = group_x + len(SETUPS) * SLOT / 2
        elements.append(
            f'<text class="updates" x="{middle:.0f}" y="{base + 18}">{mark:,} updates</text>'
        )
        for slot, setup in enumerate(SETUPS):
            value = bars.get((setup.title, mark))
            if value is None:
                continue
            x = group_x + slot * SLOT + (SLOT - BAR) / 2
            tall = max(1.0, value * scale)
            tooltip = f"{setup.title}, {mark:,} updates: {unit.figure(value)} {unit.label}"
            elements += [
                (
                    f'<rect class="bar" x="{x:.0f}" y="{base - tall:.1f}" width="{BAR}"'
                    f' height="{tall:.1f}" fill="{setup.colour}"><title>{tooltip}</title></rect>'
                ),
                (
                    f'<text class="figure" x="{x + BAR / 2:.0f}"'
                    f' y="{base - tall - 4:.1f}">{unit.figure(value)}</text>'
                ),
            ]
    return elements


def alt(name: str) -> str:
    """Say what the picture shows: KTH's bars, and ours on either split."""
    rows = results(KTH).get("rows", ())
    sentences = []
    for title, bars in (
        ("KTH", kth_bars(name)),
        ("Ours at random", our_bars(name, "random", rows)),
        ("Ours on other people", our_bars(name, "people", rows)),
    ):
        unit = unit_of(name, max(bars.values(), default=0.0))
        clauses = []
        for setup in SETUPS:
            values = {
                mark: value
                for mark in MARKS
                if (value := bars.get((setup.title, mark))) is not None
            }
            if values:
                listing = ", ".join(
                    f"{unit.figure(value)} after {mark:,} updates" for mark, value in values.items()
                )
                clauses.append(f"{setup.title}: {listing}")
        sentences.append(f"{title}, {unit.label}: {'; '.join(clauses) or 'nothing yet'}")
    return f"Bars: {CHARTS[name].lower()}. {'. '.join(sentences)}."


def figures() -> str:
    """Return both charts as a page includes them."""
    return "\n\n".join(
        f"![{title}: KTH's bars above ours; the tables below have the figures.](images/{name}.svg)"
        for name, title in CHARTS.items()
    )
