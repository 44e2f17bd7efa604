"""The page of a sweep in one file: its runs by settings, their figures and charts.

A chart shows a figure against the setting with the most values.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster.pages.charts import Chart, Series, chart_of_figure, thinned
from cluster.pages.drawing import environment
from cluster.pages.files import HELD_OUT, SweepGroup, SweepRecord, read_sweep
from cluster.pages.panels import Tile
from cluster.pages.words import NOTHING, count, duration, figure, figure_word, measure, percent
from core.status.parts import FIGURE_KEYS

MOST_LINES = 6
"""Lines of different colour and dash in a chart."""
MOST_CHARTS = 12
MOST_BARS = 60
LONGEST_VALUE = 60
PREFIXES = ("jobs.train.", "model.")
HINTS = {
    "accuracy": "share of the test set named correctly, the mean over the seeds",
    "loss": "how wrong the answers are, the mean over the seeds; lower is better",
}
"""Figures that are drawn: the first one that a run has."""


def short_key(key: str) -> str:
    """A key without what nearly all begin with."""
    for prefix in PREFIXES:
        key = key.removeprefix(prefix)
    return key


def value_text(value: Any) -> str:
    """A value of a setting, short."""
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, default=str)
    if len(text) <= LONGEST_VALUE:
        return text
    return f"{text[: LONGEST_VALUE - 1]}\N{HORIZONTAL ELLIPSIS}"


def settings_text(settings: Mapping[str, Any]) -> str:
    """The settings of a run in one line."""
    return (
        ", ".join(f"{short_key(key)} {value_text(value)}" for key, value in settings.items())
        or "as in its base"
    )


def charts_of_sweep(sweep: SweepRecord) -> list[Chart]:
    """Return lines over the number with the most values, and bars where no setting is a number.

    As many combinations of the other settings as fit share a chart.
    """
    name = next((name for name in HINTS if any(group.values(name) for group in sweep.groups)), None)
    if name is None:
        return []
    varied = [axis for axis in sweep.varied if len(axis.values) > 1]
    numbers = [axis for axis in varied if all(map(_is_number, axis.values))]
    if not numbers:
        return [_bars(sweep, name)]
    across = max(numbers, key=lambda axis: len(axis.values)).key
    lines: dict[str, list[SweepGroup]] = {}
    for group in sweep.groups:
        if _is_number(group.settings.get(across)):
            settings = {key: value for key, value in group.settings.items() if key != across}
            lines.setdefault(settings_text(settings) if settings else "all runs", []).append(group)
    charts = []
    items = [*lines.items()]
    for at in range(0, min(len(items), MOST_LINES * MOST_CHARTS), MOST_LINES):
        series = [
            line
            for color, (title, groups) in enumerate(items[at : at + MOST_LINES])
            for line in _band_of(title, groups, across, name, color)
        ]
        charts.append(_titled(series, across, name, at // MOST_LINES))
    return charts


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def _band_of(
    title: str, groups: list[SweepGroup], across: str, name: str, color: int
) -> list[Series]:
    """The mean over the seeds, in a band from the lowest to the highest where there are several."""
    points = sorted(
        (float(group.settings[across]), group.values(name))
        for group in groups
        if group.values(name)
    )
    mean = Series(title, thinned([(x, sum(values) / len(values)) for x, values in points]), color)
    if not any(len(values) > 1 for _, values in points):
        return [mean]
    band = thinned([(x, min(values), max(values)) for x, values in points])
    return [Series(f"{title}: lowest to highest", band, color, "band"), mean]


def _titled(series: list[Series], across: str, name: str, place: int) -> Chart:
    head = f"{name.capitalize()} by {short_key(across)}"
    chart = _chart("", place, name, series)
    return replace(chart, title=head, x_label=short_key(across))


def _bars(sweep: SweepRecord, name: str) -> Chart:
    groups = [group for group in sweep.groups if group.values(name)][:MOST_BARS]
    bars = Series("ours", thinned([(at, group.mean(name)) for at, group in enumerate(groups)]), 0)
    labels = tuple(settings_text(group.settings) for group in groups)
    chart = _chart("-bars", 0, name, [bars])
    return replace(chart, title=name.capitalize(), labels=labels)


def _chart(kind: str, place: int, name: str, series: list[Series]) -> Chart:
    """A chart of the figure of this name, which is a share or a value."""
    if name == "accuracy":
        kind = f"sweep-share{kind}"
    else:
        kind = f"sweep-value{kind}"
    chart = chart_of_figure(kind, place, name, series, "windows")
    return replace(chart, id=f"sweep-{place}", hint=f"{HINTS[name][:1].upper()}{HINTS[name][1:]}.")


MOST_ROWS = 500
MOST_FAILED = 50
MOST_OTHERS = 4

_SHARES = ("accuracy", "f1_macro", "precision_macro", "recall_macro")
_NAMES = {
    "accuracy": "accuracy",
    "f1_macro": "macro F1",
    "precision_macro": "precision",
    "recall_macro": "recall",
    "loss": "loss",
    HELD_OUT: "held-out accuracy",
    "seconds": "time",
}
"""Figures with a column, in its order."""


@dataclass(frozen=True)
class TableEntry:
    """A figure of a row."""

    text: str
    spread: str = ""


@dataclass(frozen=True)
class SweepRow:
    """The runs of one choice of settings."""

    settings: tuple[str, ...]
    ended: str
    """Count of its runs that have ended, and of those that failed."""
    state: str
    cells: tuple[TableEntry, ...]


@dataclass(frozen=True)
class SweepTable:
    """All that the template needs of the rows."""

    keys: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[SweepRow, ...]
    left_out: int


def sweep_page(folder: Path) -> str:
    """The whole file, from `sweep.json` of the folder.

    Raises UsageError for a folder that holds no sweep.
    """
    sweep = read_sweep(folder)
    failed = [run for run in sweep.runs if run.state == "failed" or run.error]
    return (
        environment()
        .get_template("sweep.html")
        .render(
            title=f"Sweep {sweep.name}",
            sweep=sweep,
            tiles=tiles_of_sweep(sweep),
            table=table_of_sweep(sweep),
            charts=[chart for chart in charts_of_sweep(sweep) if not chart.is_empty],
            failed=[(run, settings_text(run.settings)) for run in failed[:MOST_FAILED]],
            left_out=max(0, len(failed) - MOST_FAILED),
        )
    )


def tiles_of_sweep(sweep: SweepRecord) -> list[Tile]:
    """The figures to look at first."""
    states = [run.state for run in sweep.runs]
    over = sum(state in ("finished", "failed", "pruned") for state in states)
    tiles = [
        Tile("Runs", f"{count(over)} of {count(len(states))}", "have ended"),
        Tile("Seeds", count(len(sweep.seeds)), "of each choice of settings"),
        Tile(
            "Time",
            duration(sum(run.seconds or 0.0 for run in sweep.runs)),
            "of all runs, one after the other",
        ),
    ]
    means = [mean for group in sweep.groups if (mean := group.mean("accuracy")) is not None]
    if means:
        hint = "lowest and highest mean of the settings; the test set chooses none"
        tiles.append(Tile("Test accuracy", f"{percent(min(means))} to {percent(max(means))}", hint))
    held_out = [group for group in sweep.groups if group.values(HELD_OUT)]
    if held_out:
        best = max(held_out, key=lambda group: group.mean(HELD_OUT) or 0.0)
        test = percent(best.mean("accuracy"), 2)
        hint = f"highest mean on what was held out; test {test}: {settings_text(best.settings)}"
        tiles.append(Tile("Chosen", percent(best.mean(HELD_OUT), 2), hint))
    nodes = {run.node for run in sweep.runs if run.node}
    if sweep.placement == "node":
        hint = "trained one run each at a time"
    else:
        hint = "trained the runs"
    if nodes:
        tiles.append(Tile("Nodes", count(len(nodes)), hint))
    return tiles


def figures_of_sweep(sweep: SweepRecord) -> list[str]:
    """Return figures with a column: the usual ones that are known, then the task's own."""
    had = dict.fromkeys(
        name for run in sweep.runs for name, value in (run.final or {}).items() if value is not None
    )
    columns = {*had, "seconds"}
    if any(group.values(HELD_OUT) for group in sweep.groups):
        columns.add(HELD_OUT)
    usual = [name for name in _NAMES if name in columns]
    return [*usual, *[name for name in had if name not in FIGURE_KEYS][:MOST_OTHERS]]


def table_of_sweep(sweep: SweepRecord) -> SweepTable:
    """The table of the page: a row for each choice of settings."""
    keys = [axis.key for axis in sweep.varied]
    figures = figures_of_sweep(sweep)
    groups = sweep.groups[:MOST_ROWS]
    heads = tuple(_NAMES.get(name) or figure_word(name).word for name in figures)
    rows = tuple(_row(group, keys, figures) for group in groups)
    return SweepTable(tuple(map(short_key, keys)), heads, rows, len(sweep.groups) - len(groups))


def _row(group: SweepGroup, keys: Sequence[str], figures: Sequence[str]) -> SweepRow:
    cells = []
    for name in figures:
        spread = group.spread(name)
        if spread is None:
            beside = ""
        else:
            beside = written_figure(name, spread)
        cells.append(TableEntry(written_figure(name, group.mean(name)), beside))
    states = Counter[str](run.state for run in group.runs)
    counts = [f"{len(group.ended)} of {len(group.runs)}"]
    counts += [
        f"{states[state]} {state}" for state in ("failed", "pruned", "running") if states[state]
    ]
    settings = tuple(
        value_text(group.settings[key]) if key in group.settings else NOTHING for key in keys
    )
    return SweepRow(settings, ", ".join(counts), _state(group, states), tuple(cells))


def _state(group: SweepGroup, states: Counter[str]) -> str:
    for state in ("failed", "running"):
        if states[state]:
            return state
    if states.keys() <= {"finished", "pruned"}:
        if not group.ended:
            return "pruned"
        return "finished"
    if group.ended:
        return "running"
    return "waiting"


def written_figure(name: str, value: float | None) -> str:
    """A figure as the page writes it."""
    if name == "seconds":
        return duration(value)
    if name in ("accuracy", HELD_OUT):
        return percent(value, 2)
    if name in _SHARES:
        return figure(value)
    return measure(value)
