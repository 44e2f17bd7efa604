"""The charts that no row of `charts.yaml` can say: what they draw is computed first.

Precision over recall of each class on the test set is from the run's `result.json`, which may be
foreign.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor, pi
from operator import itemgetter
from statistics import median
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from cluster.pages.charts import Chart, Series, chart, smoothed, thinned
from cluster.pages.words import RECORDINGS, WORDS, label, significant
from core.status.view import NodeView, PiPoint, RoleView, RunView

FEW_WORKERS = 4
"""Workers with a line each; more are a band from the slowest to the fastest."""
BAND_ERRORS = 2.0
"""Half the width of the band around the estimate of pi, in standard errors: 19 of 20 estimates lie
that close."""


def unit_of(view: RunView) -> str:
    """Return what its workers work off."""
    if view.job == "pi":
        return "samples"
    return view.unit


def place_of(task: str) -> tuple[str, int]:
    """Sorts coordinator, ps, worker, and worker:10 after worker:9."""
    role, _, number = task.partition(":")
    return role, int(number) if number.isdigit() else 0


def _speeds(view: RunView) -> Chart:
    tasks = sorted({task for sample in view.samples for task in sample.workers}, key=place_of)
    if len(tasks) <= FEW_WORKERS:
        series = [
            Series(
                task,
                smoothed([(s.seconds, s.workers[task]) for s in view.samples if task in s.workers]),
                color,
            )
            for color, task in enumerate(tasks)
        ]
    else:
        spread = [
            (sample.seconds, sorted(sample.workers.values()))
            for sample in view.samples
            if sample.workers
        ]
        band = smoothed([(at, speeds[0], speeds[-1]) for at, speeds in spread])
        middle = smoothed([(at, median(speeds)) for at, speeds in spread])
        series = [
            Series("slowest to fastest", band, 0, "band"),
            Series("the worker in the middle", middle, 0),
        ]
    return chart("speeds", *series, unit=unit_of(view))


def bars(name: str, series: str, values: Mapping[str, float], unit: str = RECORDINGS) -> Chart:
    """The chart of this name with a bar for each of these, by its label."""
    points = tuple((at, significant(value, 10)) for at, value in enumerate(values.values()))
    return chart(name, Series(series, points), unit=unit, labels=tuple(values))


def _anatomy(view: RunView) -> Chart:
    if view.train:
        seconds = view.train.step_parts_seconds
    else:
        seconds = {}
    seconds_of = {
        f"{name} ({meaning})": seconds[name]
        for name, meaning in WORDS["step_parts"].items()
        if name in seconds
    }
    return bars("anatomy", "seconds of a step", seconds_of)


def _staleness(view: RunView) -> Chart:
    if view.train:
        staleness = view.train.staleness
    else:
        staleness = None
    if staleness is None or not any(staleness.counts):
        return bars("staleness", "updates", {})
    labels = []
    low = 0
    for high in staleness.bounds:
        labels.append(str(high) if low >= high else f"{low} to {high}")
        low = high + 1
    labels.append(f"over {staleness.bounds[-1]}" if staleness.bounds else "all")
    last = max(place for place, count in enumerate(staleness.counts) if count)
    counts = [*zip(labels, staleness.counts, strict=False)][: last + 2]  # and one that is empty
    return bars("staleness", "updates", dict(counts))


def _timeline(view: RunView) -> Chart:
    tasks = sorted({span.task for span in view.spans}, key=place_of)
    rows = {task: row for row, task in enumerate(tasks)}
    end = max([view.elapsed_seconds, *(span.begin_seconds for span in view.spans)])
    spans = dict[str, list[tuple[float, float, float]]]()
    for span in view.spans:
        if span.end_seconds is None:
            until = end
        else:
            until = span.end_seconds
        place = (rows[span.task], round(span.begin_seconds, 2), round(until, 2))
        spans.setdefault(span.state, []).append(place)
    series = [
        Series(state, tuple(spans.get(state, ())), color)
        for state, color in WORDS["span_states"].items()
    ]
    return chart("timeline", *series, labels=tuple(tasks))


def workers_of(view: RunView) -> list[tuple[NodeView, RoleView]]:
    """The workers of the inventory or of the run, each with its node."""
    pairs = [(node, role) for node in view.nodes for role in node.roles]
    workers = [pair for pair in pairs if pair[1].task.startswith("worker:")]
    return sorted(workers, key=lambda pair: place_of(pair[1].task))


def _worked(view: RunView) -> Chart:
    """Return what each worker did in the whole run."""
    windows = {role.task.removeprefix("worker:"): role.windows for _, role in workers_of(view)}
    unit = unit_of(view)
    return bars("worked", unit, windows if any(windows.values()) else {}, unit)


def _curve(view: RunView) -> tuple[PiPoint, ...]:
    """Return its points; a single one, all that a run without a history has, is no curve."""
    if view.pi is not None and len(view.pi.points) > 1:
        return view.pi.points
    return ()


def _estimate(view: RunView) -> Chart:
    points = _curve(view)
    band = []
    for point in points:
        half = BAND_ERRORS * point.standard_error
        band.append((point.samples, point.estimate - half, point.estimate + half))
    line = [(point.samples, point.estimate) for point in points]
    ends = tuple((float(point.samples), pi) for point in (*points[:1], *points[-1:]))
    return chart(
        "estimate",
        Series("band of two standard errors", thinned(band, digits=10), 0, "band"),
        Series("estimate", thinned(line, digits=10), 0),
        Series("pi", ends, 1, "reference"),
        y_range=_around_pi(points),
    )


def _around_pi(points: tuple[PiPoint, ...]) -> tuple[float, float] | None:
    """Return the ends of the axis: room for the band as it was at a fiftieth of the samples.

    With all of the start in it, the band's end would be a mere line. None without points.
    """
    if not points:
        return None
    early = next(point for point in points if point.samples >= points[-1].samples / 50)
    half = 2 * BAND_ERRORS * early.standard_error
    return pi - half, pi + half


def _error(view: RunView) -> Chart:
    points = _curve(view)
    expected = [(point.samples, point.standard_error) for point in points]
    distances = [(point.samples, abs(point.estimate - pi)) for point in points]
    errors = [(samples, distance) for samples, distance in distances if distance]
    return chart(
        "error",
        Series("standard error: expected", thinned(expected), 0),
        Series("distance to pi: found", thinned(errors), 1),
    )


def _time(view: RunView) -> Chart:
    """Return how long each number of samples took in a pi run that has ended."""
    points = [(point.samples, point.seconds) for point in _curve(view)]
    return chart("time", Series("time", thinned(points)))


SPECIAL: Mapping[str, Callable[[RunView], Chart]] = {
    "speeds": _speeds,
    "anatomy": _anatomy,
    "staleness": _staleness,
    "timeline": _timeline,
    "worked": _worked,
    "estimate": _estimate,
    "error": _error,
    "time": _time,
}
"""The charts of a run by their names."""

MOST_CURVES = 30
LONGEST_LABEL = 60
EARLY_RECALL = 0.95
"""The picture has room for all precisions up to this recall."""

Share = Annotated[float, Field(strict=True, ge=0.0, le=1.0)]


@dataclass(frozen=True)
class _Curve:
    """One class against the rest."""

    recall: list[Share]
    precision: list[Share]
    average_precision: Annotated[float, Field(strict=True, allow_inf_nan=False)]


_CURVE = TypeAdapter(_Curve)


def precision_recall(curves: Any, unit: str) -> Chart:
    """The chart of what a result has of this name; empty where there are no such curves."""
    series: list[Series] = []
    for text, described_curve in (
        [*curves.items()][:MOST_CURVES] if isinstance(curves, Mapping) else ()
    ):
        try:
            curve = _CURVE.validate_python(described_curve)
            points = sorted(zip(curve.recall, curve.precision, strict=True), key=itemgetter(0))
        except ValueError:
            continue
        if points:
            name = f"{label(str(text)[:LONGEST_LABEL])} ({curve.average_precision:.3f})"
            series.append(Series(name, thinned(points), len(series)))
    # Good curves would all lie along the top; each falls to the share of its class at the very end.
    early = [y or 0.0 for line in series for x, y in line.points if (x or 0.0) <= EARLY_RECALL]
    y_range = (floor(20 * min([*early, 0.9])) / 20, 1.0)
    return chart("precision_recall", *series, unit=unit, y_range=y_range)
