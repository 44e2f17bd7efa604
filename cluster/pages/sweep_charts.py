"""The charts of a sweep: a figure against the setting with the most values."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cluster.pages.charts import Chart, Series, chart_of_figure, thinned
from cluster.pages.sweep_files import SweepGroup, SweepRecord

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
