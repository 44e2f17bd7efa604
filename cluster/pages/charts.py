"""Charts as data: what static/charts.js draws, what a screen reader hears, and their tables.

`charts.yaml` has their words and axes. A chart never carries numbers that its table does not have.
Several pi runs have one of time against samples, by number of workers.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import yaml
from markupsafe import Markup

from cluster.pages.files import StoredRun, number_of
from cluster.pages.words import (
    NOTHING,
    RECORDINGS,
    duration,
    figure,
    figure_word,
    percent,
    short,
    significant,
    terms,
)

DEFINITIONS: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("charts.yaml").read_text(encoding="utf-8")
)
"""The fields of each chart but its numbers."""
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
    row_heads: tuple[str, str] = ("worker", "state")
    """The words of spans: what a row is, and what a series is."""
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
            return [*self.row_heads, "from", "until"], sorted(rows, key=lambda row: row[0])[
                : 4 * MOST_ROWS
            ]
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
    labels: Iterable[str] = (),
    y_range: tuple[float, float] | None = None,
) -> Chart:
    """The chart of this name in `charts.yaml` with these series.

    `unit`: what the workers work off.
    """
    return Chart(
        id=name, series=series, labels=tuple(labels), y_range=y_range, **_definition(name, unit)
    )


def chart_of_figure(
    kind: str, place: int, figure: str, series: Sequence[Series], unit: str
) -> Chart:
    """Return the chart of a figure that only some tasks or apps have.

    `place` is its number on the page.
    """
    meaning_of_figure = figure_word(figure)
    if meaning_of_figure.hint:
        meaning = f"{meaning_of_figure.hint[:1].upper()}{meaning_of_figure.hint[1:]}."
    else:
        meaning = ""
    definition = _definition(kind, unit, figure=meaning_of_figure.word, meaning=meaning)
    return Chart(
        id=f"{kind}-{place}",
        series=tuple(series),
        **{**definition, "hint": definition["hint"].strip()},
    )


def _definition(name: str, unit: str, **more: str) -> dict[str, Any]:
    replacements = {**terms(unit), **more}
    return {
        key: value.format(**replacements) if isinstance(value, str) else value
        for key, value in DEFINITIONS[name].items()
    }


def number_text(value: float | None, unit: Unit) -> str:
    """A number of a chart in words."""
    if value is None:
        return NOTHING
    match unit:
        case "seconds":
            return duration(value)
        case "ratio":
            return percent(value)
        case "samples" | "number":
            return short(value)
        case "pi":
            return figure(value, 7)
        case "error":
            return f"{value:.2g}"
        case "epoch":
            return f"{value:g}"


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


SAMPLES = range(10_000_000, 110_000_000, 10_000_000)
"""Samples that have a row even without a run: those of the 2019 thesis."""


@dataclass(frozen=True)
class MeanTime:
    """How long `workers` took for `samples`."""

    seconds: float
    runs: int
    """Runs it is the mean of; 0 where a run passed it on the way to more samples."""
    speedup: float | None
    """Speed as a multiple of one worker's."""


@dataclass(frozen=True)
class Times:
    """The table: `cells[row][column]`, None where no run got there."""

    samples: tuple[int, ...]
    workers: tuple[int, ...]
    cells: tuple[tuple[MeanTime | None, ...], ...]

    @property
    def measured(self) -> bool:
        """Whether there is anything in it."""
        return any(cell for row in self.cells for cell in row)


def times_of(runs: Sequence[StoredRun]) -> Times:
    """The table of all pi runs among `runs`."""
    by_workers = dict[int, list[StoredRun]]()
    for run in runs:
        if run.view.job == "pi" and (workers := int(number_of(run.result, "workers") or 0)):
            by_workers.setdefault(workers, []).append(run)
    whole = {
        int(number_of(run.result, "samples") or 0)
        for run in runs
        if run.view.job == "pi" and _is_done(run)
    }
    rows = {}
    for samples in sorted({*SAMPLES, *whole} - {0}):
        seconds = {
            workers: _seconds(samples, by_workers[workers]) for workers in sorted(by_workers)
        }
        if any(seconds.values()):
            alone = seconds.get(1)
            rows[samples] = tuple(
                mean_time and _cell(mean_time, alone) for workers, mean_time in seconds.items()
            )
    return Times(tuple(rows), tuple(sorted(by_workers)), tuple(rows.values()))


def _is_done(run: StoredRun) -> bool:
    return run.view.state == "done"


def _cell(mean_time: tuple[float, int], alone: tuple[float, int] | None) -> MeanTime:
    seconds, runs = mean_time
    if alone and seconds > 0:
        speedup = alone[0] / seconds
    else:
        speedup = None
    return MeanTime(seconds, runs, speedup)


def _seconds(samples: int, runs: Iterable[StoredRun]) -> tuple[float, int] | None:
    """Return mean seconds of the runs with so many samples, and how many they are.

    Without such a run they are the mean seconds at which longer runs passed that number, and 0.
    None without any.
    """
    whole = []
    passed = []
    for run in runs:
        if _is_done(run) and number_of(run.result, "samples") == samples:
            whole.append(run.view.elapsed_seconds)
        elif (at := _when(run, samples)) is not None:
            passed.append(at)
    if whole:
        return fmean(whole), len(whole)
    if passed:
        return (fmean(passed), 0)
    return None


def _when(run: StoredRun, samples: int) -> float | None:
    """The second at which the run had drawn `samples`, between two that were written down."""
    if run.view.pi:
        points = run.view.pi.points
    else:
        points = ()
    # Points count from the first chunk; what the start and the end of the job took belongs to it as
    # well.
    if points and _is_done(run):
        besides = max(0.0, run.view.elapsed_seconds - points[-1].seconds)
    else:
        besides = 0.0
    for before, after in pairwise(points):
        if before.samples <= samples <= after.samples and after.samples > before.samples:
            share = (samples - before.samples) / (after.samples - before.samples)
            return besides + before.seconds + share * (after.seconds - before.seconds)
    return None


def times_chart(times: Times) -> Chart:
    """The table as lines, one for each number of workers."""
    series = []
    for column, workers in enumerate(times.workers):
        cells = zip(times.samples, times.cells, strict=True)
        points = [
            (samples, cell.seconds) for samples, row in cells if (cell := row[column]) is not None
        ]
        series.append(
            Series(f"{workers} worker{'s' if workers > 1 else ''}", thinned(points), column)
        )
    return chart("times", *series)
