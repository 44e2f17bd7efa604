"""The charts of one run, the same ones on the page and in the report.

Precision over recall of each class on the test set is from the run's `result.json`, which may be
foreign.
"""

from collections.abc import Mapping
from math import floor, isfinite, pi
from statistics import median
from typing import Any

from cluster.pages.charts import Chart, Series, chart, chart_of_figure, smoothed, thinned
from cluster.pages.files import StoredRun, part_of
from cluster.pages.words import WORDS, label, terms
from core.status.parts import CLASSIFICATION, MULTILABEL
from core.status.view import EpochView, PiPoint, PiView, RunView, TrainView

NAMING = (CLASSIFICATION, MULTILABEL)
"""Tasks whose answers are right or wrong."""
MOST_OTHER_CHARTS = 6
FEW_WORKERS = 4
"""Workers with a line each; more are a band from the slowest to the fastest."""
BAND_ERRORS = 2.0
"""Half the width of the band around the estimate of pi, in standard errors: 19 of 20 estimates lie
that close."""

NO_TRAINING = TrainView(mode="", model="", parameters=None, step_parts_seconds={})
"""Stands for one that has not begun."""


def charts_of(view: RunView) -> list[Chart]:
    """Return the charts that fit the job, in order; none of a sweep, whose runs have their own."""
    if view.job == "sweep":
        return []
    train = view.train or (NO_TRAINING if view.job == "train" else None)
    drawn = view.pi or (PiView(0, ()) if view.job == "pi" else None)
    unit = unit_of(view)
    speed = smoothed([(sample.seconds, sample.windows_per_second) for sample in view.samples])
    charts = []
    if train is not None:
        charts += [
            _loss(view, train),
            *_accuracy(view, train),
            *_custom_charts(train, unit),
        ]
    if drawn is not None:
        charts += [_estimate(drawn), _error(drawn)]
    charts += [chart("throughput", Series(f"{unit} a second", speed), unit=unit), _speeds(view)]
    if train is not None:
        charts += [_anatomy(train), _staleness(train)]
    return [*charts, _timeline(view)]


def _loss(view: RunView, train: TrainView) -> Chart:
    moments = [(sample.seconds, sample.loss) for sample in view.samples if sample.loss is not None]
    return chart(
        "loss",
        Series("training, at the moment", thinned(moments), 0),
        Series("training, mean of an epoch", _by_time(train, "loss"), 1, "points"),
        Series(terms(unit_of(view))["held_out"], _by_time(train, "validation_loss"), 2, "points"),
        unit=unit_of(view),
    )


def _accuracy(view: RunView, train: TrainView) -> list[Chart]:
    """Return the shares that the task has, by epoch; none where it has no accuracy."""
    held_out = terms(unit_of(view))["held_out"]
    names = {
        "training": "accuracy",
        held_out: "validation_accuracy",
        f"{held_out}, precision": "validation_precision_macro",
        f"{held_out}, recall": "validation_recall_macro",
        f"{held_out}, F1": "validation_f1_macro",
    }
    series = [
        Series(name, _by_epoch(train, key), color)
        for color, (name, key) in enumerate(names.items())
    ]
    accuracy = chart("accuracy", *series, unit=unit_of(view))
    if accuracy.is_empty and view.task_type not in NAMING:
        return []
    return [accuracy]


def _by_epoch(train: TrainView, key: str) -> tuple[tuple[float | None, ...], ...]:
    values = [(float(epoch.epoch), getattr(epoch, key)) for epoch in train.epochs]
    return thinned([(epoch, value) for epoch, value in values if value is not None])


def _custom_charts(train: TrainView, unit: str) -> list[Chart]:
    """Return a chart for each of the first figures of only this task or app: their sizes differ."""
    charts = []
    for place, name in enumerate(others_of(train)[:MOST_OTHER_CHARTS]):
        values = [
            (epoch.seconds, epoch.validation_others[name])
            for epoch in train.epochs
            if name in epoch.validation_others
        ]
        series = Series(terms(unit)["held_out"], thinned(values), 1)
        charts.append(chart_of_figure("other", place, name, [series], unit))
    return charts


def others_of(train: TrainView) -> list[str]:
    """Names of the figures that only this task or app has, in the order in which they came."""
    return [*dict.fromkeys(name for epoch in train.epochs for name in epoch.validation_others)]


def _by_time(train: TrainView, key: str) -> tuple[tuple[float | None, ...], ...]:
    values: list[tuple[EpochView, float | None]] = [
        (epoch, getattr(epoch, key)) for epoch in train.epochs
    ]
    return thinned([(epoch.seconds, value) for epoch, value in values if value is not None])


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
        series = [
            Series(
                "slowest to fastest",
                smoothed([(at, speeds[0], speeds[-1]) for at, speeds in spread]),
                0,
                "band",
            ),
            Series(
                "the worker in the middle",
                smoothed([(at, median(speeds)) for at, speeds in spread]),
                0,
            ),
        ]
    return chart("speeds", *series, unit=unit_of(view))


def _anatomy(train: TrainView) -> Chart:
    step_parts = [name for name in WORDS.step_parts if name in train.step_parts_seconds]
    points = thinned(
        [(place, train.step_parts_seconds[name]) for place, name in enumerate(step_parts)]
    )
    labels = (f"{name} ({WORDS.step_parts[name]})" for name in step_parts)
    return chart("anatomy", Series("seconds of a step", points), labels=labels)


def _staleness(train: TrainView) -> Chart:
    staleness = train.staleness
    bounds = () if staleness is None else staleness.bounds
    lows = [0, *(bound + 1 for bound in bounds)]
    labels = [
        str(high) if low >= high else f"{low} to {high}"
        for low, high in zip(lows, bounds, strict=False)
    ]
    if staleness is not None:
        labels.append(f"over {bounds[-1]}" if bounds else "all")
    counts = () if staleness is None or not any(staleness.counts) else staleness.counts
    bars = 2 + max(
        (place for place, count in enumerate(counts) if count), default=0
    )  # and one that is empty
    points = tuple((place, float(count)) for place, count in enumerate(counts[:bars]))
    return chart("staleness", Series("updates", points), labels=labels[:bars])


def _timeline(view: RunView) -> Chart:
    tasks = sorted({span.task for span in view.spans}, key=place_of)
    rows = {task: place for place, task in enumerate(tasks)}
    end = max([view.elapsed_seconds, *(span.begin_seconds for span in view.spans)])
    spans = [
        (
            span.state,
            rows[span.task],
            round(span.begin_seconds, 2),
            round(end if span.end_seconds is None else span.end_seconds, 2),
        )
        for span in view.spans
    ]
    series = (
        Series(
            state,
            tuple(
                (row, begin, end) for span_state, row, begin, end in spans if span_state == state
            ),
            color,
        )
        for state, color in WORDS.span_states.items()
    )
    return chart("timeline", *series, labels=tasks)


def work_of_workers(view: RunView) -> Chart:
    """Return what each worker did in the whole run."""
    roles = [role for node in view.nodes for role in node.roles if role.task.startswith("worker:")]
    roles.sort(key=lambda role: place_of(role.task))
    unit = unit_of(view)
    labels = (role.task.removeprefix("worker:") for role in roles)
    points = tuple((place, float(role.windows)) for place, role in enumerate(roles))
    if not any(role.windows for role in roles):
        points = ()
    return chart("worked", Series(unit, points), unit=unit, labels=labels)


def _curve(view: PiView) -> tuple[PiPoint, ...]:
    """Return its points; a single one, all that a run without a history has, is no curve."""
    if len(view.points) > 1:
        return view.points
    return ()


def _estimate(view: PiView) -> Chart:
    points = _curve(view)
    band = [
        (
            point.samples,
            point.estimate - BAND_ERRORS * point.standard_error,
            point.estimate + BAND_ERRORS * point.standard_error,
        )
        for point in points
    ]
    ends = (points[0], points[-1]) if points else ()
    return chart(
        "estimate",
        Series("band of two standard errors", thinned(band, digits=10), 0, "band"),
        Series(
            "estimate", thinned([(point.samples, point.estimate) for point in points], digits=10), 0
        ),
        Series("pi", tuple((float(point.samples), pi) for point in ends), 1, "reference"),
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


def _error(view: PiView) -> Chart:
    expected = [(point.samples, point.standard_error) for point in _curve(view)]
    off = [
        (point.samples, abs(point.estimate - pi)) for point in _curve(view) if point.estimate != pi
    ]
    return chart(
        "error",
        Series("standard error: expected", thinned(expected), 0),
        Series("distance to pi: found", thinned(off), 1),
    )


def time_of(view: PiView) -> Chart:
    """Return how long each number of samples took in a pi run that has ended."""
    return chart(
        "time", Series("time", thinned([(point.samples, point.seconds) for point in _curve(view)]))
    )


def unit_of(view: RunView) -> str:
    """Return what its workers work off."""
    if view.job == "pi":
        return "samples"
    return view.unit


def place_of(task: str) -> tuple[str, int]:
    """Sorts coordinator, ps, worker, and worker:10 after worker:9."""
    role, _, number = task.partition(":")
    return role, int(number) if number.isdigit() else 0


MOST_CURVES = 30
LONGEST_LABEL = 60
EARLY_RECALL = 0.95
"""The picture has room for all precisions up to this recall."""


def precision_recall(run: StoredRun, unit: str) -> Chart:
    """The chart; empty where the run has no such curves."""
    curves = part_of(run.result, "precision_recall")
    series: list[Series] = []
    for text, curve in list(curves.items())[:MOST_CURVES] if isinstance(curves, Mapping) else []:
        points = _points(curve)
        if isinstance(curve, Mapping):
            average = _number(part_of(curve, "average_precision"))
        else:
            average = None
        if points and average is not None:
            name = f"{label(str(text)[:LONGEST_LABEL])} ({average:.3f})"
            series.append(Series(name, thinned(points), len(series)))
    # Good curves would all lie along the top; each falls to the share of its class at the very end.
    early = [y or 0.0 for line in series for x, y in line.points if (x or 0.0) <= EARLY_RECALL]
    y_range = (floor(20 * min([*early, 0.9])) / 20, 1.0)
    return chart("precision_recall", *series, unit=unit, y_range=y_range)


def _points(curve: Any) -> list[tuple[float, float]]:
    """Return the points by rising recall; none if the numbers are not shares."""
    if not isinstance(curve, Mapping):
        return []
    recall = curve.get("recall")
    precision = curve.get("precision")
    if (
        not isinstance(recall, list)
        or not isinstance(precision, list)
        or len(recall) != len(precision)
    ):
        return []
    points = [(_number(x), _number(y)) for x, y in zip(recall, precision, strict=True)]
    shares = [
        (x, y) for x, y in points if x is not None and y is not None and 0 <= x <= 1 and 0 <= y <= 1
    ]
    if len(shares) == len(points):
        return sorted(shares, key=lambda point: point[0])
    return []


def _number(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if usable:
        return float(value)
    return None
