"""The charts of a sweep: a figure against the setting with the most values, ours beside what papers have."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cluster.pages.charts import Chart, Series, chart_of_figure, thinned
from cluster.pages.sweep_files import Axis, Sweep, SweepGroup
from cluster.references.cells import reference_cells
from cluster.references.tables import Table

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
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}\N{HORIZONTAL ELLIPSIS}"


def settings_text(settings: Mapping[str, Any]) -> str:
    """The settings of a run in one line."""
    return ", ".join(f"{short_key(key)} {value_text(value)}" for key, value in settings.items()) or "as in its base"


def charts_of_sweep(sweep: Sweep, table: Table | None) -> list[Chart]:
    """Lines over the number with the most values, a chart for all or, beside references, for each of the others.

    Bars where no setting is a number.
    """
    name = next((name for name in HINTS if any(group.values(name) for group in sweep.groups)), None)
    if name is None:
        return []
    across = _axis_of_numbers(sweep)
    if across is None:
        return [_bars(sweep, table, name)]
    lines: dict[str, list[SweepGroup]] = {}
    for group in sweep.groups:
        if _is_number(group.settings.get(across)):
            others = {key: value for key, value in group.settings.items() if key != across}
            lines.setdefault(settings_text(others) if others else "all runs", []).append(group)
    beside = any(reference_cells(table, group.settings) for group in sweep.groups)
    if beside:
        made = [_one(title, groups, across, name, table) for title, groups in lines.items()]
        return [replace(chart, id=f"sweep-{at}") for at, chart in enumerate(made[:MOST_CHARTS])]
    found = []
    items = [*lines.items()]
    for at in range(0, min(len(items), MOST_LINES * MOST_CHARTS), MOST_LINES):
        series = [
            one for color, (title, groups) in enumerate(items[at : at + MOST_LINES])
            for one in _ours(title, groups, across, name, color)
        ]  # fmt: skip
        found.append(_titled(series, across, name, "", at // MOST_LINES))
    return found


def _axis_of_numbers(sweep: Sweep) -> str | None:
    axes = sweep.axes or tuple(
        Axis(key, tuple({value_text(run.settings.get(key)): run.settings.get(key) for run in sweep.runs}.values()))
        for key in dict.fromkeys(key for run in sweep.runs for key in run.settings)
    )
    known = [axis for axis in axes if len(axis.values) > 1 and all(_is_number(value) for value in axis.values)]
    return max(known, key=lambda axis: len(axis.values)).key if known else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def _one(title: str, groups: list[SweepGroup], across: str, name: str, table: Table | None) -> Chart:
    theirs: dict[str, list[tuple[float, float]]] = {}
    for group in groups:
        for cell in reference_cells(table, group.settings):
            if name in cell.figures:
                theirs.setdefault(cell.name, []).append((float(group.settings[across]), cell.figures[name]))
    series = _ours("ours", groups, across, name, 0)
    series += [Series(who, thinned(sorted(points)), color) for color, (who, points) in enumerate(theirs.items(), 1)]
    return _titled(series[: MOST_LINES + 1], across, name, title, 0)


def _ours(title: str, groups: list[SweepGroup], across: str, name: str, color: int) -> list[Series]:
    """The mean over the seeds, in a band from the lowest to the highest where there are several."""
    found = sorted((float(group.settings[across]), group.values(name)) for group in groups if group.values(name))
    mean = Series(title, thinned([(x, sum(values) / len(values)) for x, values in found]), color)
    if not any(len(values) > 1 for _, values in found):
        return [mean]
    band = thinned([(x, min(values), max(values)) for x, values in found])
    return [Series(f"{title}: lowest to highest", band, color, "band"), mean]


def _titled(series: list[Series], across: str, name: str, title: str, place: int) -> Chart:
    kind = "sweep-share" if name == "accuracy" else "sweep-value"
    made = chart_of_figure(kind, place, name, series, "windows")
    head = f"{name.capitalize()} by {short_key(across)}"
    return replace(
        made, id=f"sweep-{place}", title=f"{head}: {title}" if title else head, x_label=short_key(across),
        hint=f"{HINTS[name][:1].upper()}{HINTS[name][1:]}.",
    )  # fmt: skip


def _bars(sweep: Sweep, table: Table | None, name: str) -> Chart:
    groups = [group for group in sweep.groups if group.values(name)][:MOST_BARS]
    labels = tuple(settings_text(group.settings) for group in groups)
    ours = Series("ours", thinned([(at, group.mean(name)) for at, group in enumerate(groups)]), 0)
    theirs: dict[str, list[tuple[float, float]]] = {}
    for at, group in enumerate(groups):
        for cell in reference_cells(table, group.settings):
            if name in cell.figures:
                theirs.setdefault(cell.name, []).append((at, cell.figures[name]))
    series = [ours, *(Series(who, thinned(points), color) for color, (who, points) in enumerate(theirs.items(), 1))]
    kind = "sweep-share-bars" if name == "accuracy" else "sweep-value-bars"
    made = chart_of_figure(kind, 0, name, series[:MOST_LINES], "windows")
    return replace(
        made, id="sweep-0", title=name.capitalize(), labels=labels, hint=f"{HINTS[name][:1].upper()}{HINTS[name][1:]}."
    )
