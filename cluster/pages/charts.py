"""Charts as data: what static/charts.js draws, what a screen reader hears, and their tables.

`charts.yaml` has their words and axes. A chart never carries numbers that its table does not have.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import yaml
from markupsafe import Markup

from cluster.pages.words import (
    NOTHING,
    RECORDINGS,
    duration,
    figure_word,
    significant,
    terms,
    writer_of,
)

CHARTS: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("charts.yaml").read_text(encoding="utf-8")
)
"""The rows of all charts."""
MOST_POINTS = 180
"""Points of a series: a screen shows no more, and a phone should not be sent more every second."""
SMOOTH_SHARE = 0.05
"""The part of all points that a smoothed one is the mean of."""
LEAST_SMOOTH = 3
"""The fewest points on each side of such a mean."""
MOST_ROWS = 30
"""Rows of the table below a chart."""

Kind = Literal["lines", "bars", "spans"]
Unit = Literal["number", "seconds", "ratio", "samples", "pi", "error", "epoch"]


@dataclass(frozen=True)
class Series:
    """One line, set of points, band or set of bars.

    `points`: of lines (x, y), of a band (x, low, high), of bars (category, value), of spans
    (category, begin, end), where a category is its place in `labels`.
    """

    name: str
    points: tuple[tuple[float | None, ...], ...]
    color: int = 0
    look: Literal["line", "points", "band", "reference"] = "line"


@dataclass(frozen=True)
class Chart:
    """A picture with its words. `empty` says when there will be something."""

    id: str
    title: str
    hint: str
    empty: str
    series: tuple[Series, ...]
    kind: Kind = "lines"
    x_label: str = ""
    y_label: str = ""
    x_unit: Unit = "seconds"
    y_unit: Unit = "number"
    labels: tuple[str, ...] = ()
    logarithmic: bool = False
    from_zero: bool = False
    horizontal: bool = False
    y_range: tuple[float, float] | None = None
    """Part of the y axis that is drawn; None for all of it."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(series.points for series in self.series if series.look != "reference")

    @property
    def summary(self) -> str:
        """Say what the picture shows in one sentence."""
        if self.is_empty:
            return f"{self.title}: {self.empty}"
        if self.kind == "spans":
            return f"{self.title}: {len(self.labels)} rows; the table below has them"
        latest_values = [
            _latest(series, self)
            for series in self.series
            if series.points and series.look != "reference"
        ]
        return f"{self.title}. {'; '.join(latest_values[:8])}"

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows of the table below the picture."""
        if self.kind == "spans":
            rows = [
                [self.labels[int(at or 0)], series.name, duration(begin), duration(end)]
                for series in self.series
                for at, begin, end in series.points
            ]
            rows.sort(key=lambda row: row[0])
            return ["worker", "state", "from", "until"], rows[: 4 * MOST_ROWS]
        heads = [self.x_label]
        cells = dict[float | None, dict[int, str]]()
        for number, series in enumerate(self.series):
            band = series.look == "band"
            heads.append(f"{series.name}, lowest to highest" if band else series.name)
            for x, *values in series.points:
                cells.setdefault(x, {})[number] = " to ".join(
                    number_text(value, self.y_unit) for value in values
                )
        places = sorted(cells, key=lambda x: x or 0.0)
        rows = [
            [
                self.labels[int(place or 0)] if self.labels else number_text(place, self.x_unit),
                *(cells[place].get(number, NOTHING) for number in range(len(self.series))),
            ]
            for place in _spread(places, MOST_ROWS)
        ]
        return heads, rows

    def data(self) -> dict[str, Any]:
        """Return what the script draws."""
        heads, rows = self.table()
        fields = {
            **vars(self),
            "series": [vars(series) for series in self.series],
        }  # asdict would copy every point
        return {**fields, "summary": self.summary, "table": {"heads": heads, "rows": rows}}

    def json(self) -> Markup:
        """Return the chart's data as one line that may stand in HTML."""
        text = json.dumps(self.data(), separators=(",", ":"), allow_nan=False)
        for sign in "<>&\u2028\u2029":
            text = text.replace(sign, f"\\u{ord(sign):04x}")
        return Markup(text)  # nothing is left in it that HTML could take for its own


def chart(
    name: str,
    *series: Series,
    unit: str = RECORDINGS,
    texts: Mapping[str, str] | None = None,
    **fields: Any,
) -> Chart:
    """The chart of this name in `charts.yaml` with these series.

    `unit`: what the workers work off. `texts` stand for further ones in braces, `fields` for those
    of the row.
    """
    phrases = {**terms(unit), **(texts or {})}
    row = {
        key: value.format(**phrases).strip() if isinstance(value, str) else value
        for key, value in CHARTS[name].items()
        if key in Chart.__dataclass_fields__
    }
    return Chart(**{"id": name, **row, "series": series, **fields})


def chart_of_figure(name: str, place: int, figure: str, *series: Series, unit: str) -> Chart:
    """Return the chart of a figure that only some tasks or apps have.

    `place` is its number on the page.
    """
    word, hint = figure_word(figure)
    if hint:
        meaning = f"{hint[:1].upper()}{hint[1:]}."
    else:
        meaning = ""
    texts = {"figure": word, "meaning": meaning}
    return chart(name, *series, unit=unit, texts=texts, id=f"{name}-{place}")


_WRITTEN = {
    "seconds": "duration",
    "ratio": "percent",
    "samples": "short",
    "number": "short",
    "pi": "figure 7",
    "error": "rough",
    "epoch": "plain",
}


def number_text(value: float | None, unit: Unit) -> str:
    """A number of a chart in words."""
    return writer_of(_WRITTEN[unit])(value)


def thinned(
    points: Sequence[tuple[float | None, ...]], digits: int = 6
) -> tuple[tuple[float | None, ...], ...]:
    """Return at most `MOST_POINTS`, both ends included, each with as many digits as show."""
    return tuple(
        tuple(significant(value, digits) for value in point)
        for point in _spread(points, MOST_POINTS)
    )


def smoothed(points: Sequence[tuple[float, ...]]) -> tuple[tuple[float | None, ...], ...]:
    """Return points, thinned, whose values are means of about `SMOOTH_SHARE` of all of them.

    `points`: (seconds, value, ...), by rising seconds. Replies come in steps of a whole batch, so
    a raw count a second jumps between nothing and twice the speed.
    """
    half = max(LEAST_SMOOTH, round(SMOOTH_SHARE * len(points) / 2))
    smooth = []
    for at in _spread(range(len(points)), MOST_POINTS):
        near = points[max(0, at - half) : at + half + 1]
        _, *values = map(fmean, zip(*near, strict=True))
        smooth.append((points[at][0], *values))
    return thinned(smooth)


def mean_points(values: Mapping[float, Sequence[float]]) -> list[tuple[float, float]]:
    """Return the mean at each place, in order."""
    return [(x, fmean(values[x])) for x in sorted(values)]


def banded(
    name: str, values: Mapping[float, Sequence[float]], color: int, mean: str
) -> list[Series]:
    """The mean of the values at each place, in a band from the lowest to the highest."""
    band = [(x, min(values[x]), max(values[x])) for x in sorted(values)]
    return [
        Series(f"{name}: lowest to highest", thinned(band), color, "band"),
        Series(mean, thinned(mean_points(values)), color),
    ]


def _spread(items: Sequence[Any], most: int) -> Sequence[Any]:
    if len(items) <= most:
        return items
    return [items[round(at * (len(items) - 1) / (most - 1))] for at in range(most)]


def _latest(series: Series, chart: Chart) -> str:
    if chart.labels:
        bars = [
            f"{chart.labels[int(at or 0)]} {number_text(value, chart.y_unit)}"
            for at, value in series.points[:8]
        ]
        more = len(series.points) - len(bars)
        return f"{series.name}: {', '.join(bars)}" + (f" and {more} more" if more > 0 else "")
    x, *values = series.points[-1]
    latest_value = " to ".join(number_text(value, chart.y_unit) for value in values)
    return f"{series.name}: {latest_value} at {number_text(x, chart.x_unit)}"
