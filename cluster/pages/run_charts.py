"""The charts of one run, the same ones on the page and in the report."""

from math import pi
from statistics import median

from cluster.pages.charts import Chart, Series, exact, thinned
from cluster.pages.words import SPAN_STATES, STEP_PARTS
from cluster.status.view import EpochView, PiPoint, PiView, RunView, TrainView

FEW_WORKERS = 4
"""Workers with a line each; more are a band from the slowest to the fastest."""
BAND_ERRORS = 2.0
"""Half the width of the band around the estimate of pi, in standard errors: 19 of 20 estimates lie that close."""


NO_TRAINING = TrainView("", "", None, 0, 0, None, {})
"""Stands for one that has not begun."""


def charts_of(view: RunView) -> list[Chart]:
    """Those that fit the job, in the order in which they are shown."""
    train = view.train or (NO_TRAINING if view.job == "train" else None)
    drawn = view.pi or (PiView(0, ()) if view.job == "pi" else None)
    found = []
    if train is not None:
        found += [_loss(view, train), _accuracy(train)]
    if drawn is not None:
        found += [_estimate(drawn), _error(drawn)]
    found += [_throughput(view), _speeds(view)]
    if train is not None:
        found += [_anatomy(train), _staleness(train)]
    return [*found, _timeline(view)]


def _loss(view: RunView, train: TrainView) -> Chart:
    moments = [(sample.seconds, sample.loss) for sample in view.samples if sample.loss is not None]
    return Chart(
        id="loss",
        title="Loss",
        hint="How wrong the network is, lower is better: 0 is perfect, guessing among six activities is 1.79.",
        empty="comes with the first updates",
        series=(
            Series("training, at the moment", thinned(moments), 0),
            Series("training, mean of an epoch", _by_time(train, "loss"), 1, "points"),
            Series("held-out people", _by_time(train, "validation_loss"), 2, "points"),
        ),
        x_label="time since the start",
        y_label="loss",
        from_zero=True,
    )


def _accuracy(train: TrainView) -> Chart:
    return Chart(
        id="accuracy",
        title="Accuracy",
        hint="The share of windows named correctly, in the training and for people it never saw; F1 counts every "
        "class alike.",
        empty="comes after the first epoch, one pass over all training windows",
        series=(
            Series("training", _by_time(train, "accuracy"), 0),
            Series("held-out people", _by_time(train, "validation_accuracy"), 1),
            Series("held-out people, F1", _by_time(train, "validation_f1_macro"), 2),
        ),
        x_label="time since the start",
        y_label="share of the windows",
        y_unit="ratio",
    )


def _by_time(train: TrainView, key: str) -> tuple[tuple[float | None, ...], ...]:
    values: list[tuple[EpochView, float | None]] = [(epoch, getattr(epoch, key)) for epoch in train.epochs]
    return thinned([(epoch.seconds, value) for epoch, value in values if value is not None])


def _throughput(view: RunView) -> Chart:
    unit = unit_of(view)
    return Chart(
        id="throughput",
        title="Throughput",
        hint=f"How many {unit} a second all workers work off together.",
        empty="comes with the first replies of the workers",
        series=(
            Series(
                f"{unit} a second",
                thinned([(sample.seconds, sample.windows_per_second) for sample in view.samples]),
                0,
            ),
        ),
        x_label="time since the start",
        y_label=f"{unit} a second",
        from_zero=True,
    )


def _speeds(view: RunView) -> Chart:
    unit = unit_of(view)
    tasks = sorted({task for sample in view.samples for task in sample.workers}, key=place_of)
    if len(tasks) <= FEW_WORKERS:
        series = tuple(
            Series(task, thinned([(s.seconds, s.workers[task]) for s in view.samples if task in s.workers]), color)
            for color, task in enumerate(tasks)
        )
    else:
        spread = [(sample.seconds, sorted(sample.workers.values())) for sample in view.samples if sample.workers]
        series = (
            Series("slowest to fastest", thinned([(at, speeds[0], speeds[-1]) for at, speeds in spread]), 0, "band"),
            Series("the worker in the middle", thinned([(at, median(speeds)) for at, speeds in spread]), 0),
        )
    return Chart(
        id="speeds",
        title="Speed of the workers",
        hint=f"{unit.capitalize()} a second of single workers: one far below the others slows those that wait for it.",
        empty="comes with the first replies of the workers",
        series=series,
        x_label="time since the start",
        y_label=f"{unit} a second, each",
        from_zero=True,
    )


def _anatomy(train: TrainView) -> Chart:
    parts = [name for name in STEP_PARTS if name in train.step_parts_seconds]
    points = tuple((place, train.step_parts_seconds[name]) for place, name in enumerate(parts))
    return Chart(
        id="anatomy",
        title="Where a step's time goes",
        hint="Mean over the latest steps. Much pull and push: the network is the brake; much compute: the processors.",
        empty="comes with the first steps",
        series=(Series("seconds of a step", thinned(points), 0),),
        kind="bars",
        x_label="part of a step",
        y_label="time",
        y_unit="seconds",
        labels=tuple(f"{name} ({STEP_PARTS[name]})" for name in parts),
        horizontal=True,
    )


def _staleness(train: TrainView) -> Chart:
    found = train.staleness
    labels = () if found is None else (*_ranges(found.bounds), f"over {found.bounds[-1]}" if found.bounds else "all")
    counts = () if found is None or not any(found.counts) else found.counts
    shown = 2 + max((place for place, count in enumerate(counts) if count), default=0)  # and one that is empty
    return Chart(
        id="staleness",
        title="Staleness",
        hint="How many updates of others came between a worker's pull and its push. Few is fresh; the more there are, "
        "the less the gradient fits the parameters it is applied to.",
        empty="comes with the first updates",
        series=(Series("updates", tuple((place, float(count)) for place, count in enumerate(counts[:shown])), 0),),
        kind="bars",
        x_label="updates in between",
        y_label="updates",
        labels=tuple(labels[:shown]),
        from_zero=True,
    )


def _ranges(bounds: tuple[int, ...]) -> list[str]:
    lows = [0, *(bound + 1 for bound in bounds)]
    return [str(high) if low >= high else f"{low} to {high}" for low, high in zip(lows, bounds, strict=False)]


def _timeline(view: RunView) -> Chart:
    tasks = sorted({span.task for span in view.spans}, key=place_of)
    rows = {task: place for place, task in enumerate(tasks)}
    end = max([view.elapsed_seconds, *(span.begin_seconds for span in view.spans)])
    return Chart(
        id="timeline",
        title="The workers over time",
        hint="A row a worker: when it was at work, under suspicion (silent for too long), or away.",
        empty="comes as soon as a worker joins",
        series=tuple(
            Series(
                state,
                tuple(
                    (
                        rows[span.task],
                        round(span.begin_seconds, 2),
                        round(end if span.end_seconds is None else span.end_seconds, 2),
                    )
                    for span in view.spans
                    if span.state == state
                ),
                color,
            )
            for state, color in SPAN_STATES.items()
        ),
        kind="spans",
        x_label="time since the start",
        labels=tuple(tasks),
        horizontal=True,
    )


def _curve(found: PiView) -> tuple[PiPoint, ...]:
    """Its points; a single one, all that an old run has, is no curve."""
    return found.points if len(found.points) > 1 else ()


def _estimate(found: PiView) -> Chart:
    points = _curve(found)
    last = float(points[-1].samples) if points else 0.0
    first = float(points[0].samples) if points else 0.0
    band = [
        (point.samples, point.estimate - BAND_ERRORS * point.standard_error,
         point.estimate + BAND_ERRORS * point.standard_error)
        for point in points
    ]  # fmt: skip
    return Chart(
        id="estimate",
        title="Pi, as it is closed in on",
        hint="Random points in a square: four times the share that falls inside the quarter circle is pi. The band is "
        "two standard errors wide on each side: 19 of 20 such bands hold the true value. It is widest "
        "at the very start, beyond the picture.",
        empty="comes with the second chunk of points",
        series=(
            Series("band of two standard errors", exact(band), 0, "band"),
            Series("estimate", exact([(point.samples, point.estimate) for point in points]), 0),
            Series("pi", ((first, pi), (last, pi)) if points else (), 1, "reference"),
        ),
        x_label="samples drawn",
        y_label="estimate",
        x_unit="samples",
        y_unit="pi",
        y_range=_around_pi(points),
    )


def _around_pi(points: tuple[PiPoint, ...]) -> tuple[float, float] | None:
    """Room for the band as it was at a fiftieth of the samples: with all of the start in it, its end is a mere line."""
    if not points:
        return None
    early = next(point for point in points if point.samples >= points[-1].samples / 50)
    half = 2 * BAND_ERRORS * early.standard_error
    return pi - half, pi + half


def _error(found: PiView) -> Chart:
    return Chart(
        id="error",
        title="How far off",
        hint="Both scales grow by factors of ten: a hundred times the samples make the error ten times smaller.",
        empty="comes with the second chunk of points",
        series=(
            Series(
                "standard error: expected",
                thinned([(point.samples, point.standard_error) for point in _curve(found)]),
                0,
            ),
            Series(
                "distance to pi: found",
                thinned([(p.samples, abs(p.estimate - pi)) for p in _curve(found) if p.estimate != pi]),
                1,
            ),
        ),
        x_label="samples drawn",
        y_label="error",
        x_unit="samples",
        y_unit="error",
        logarithmic=True,
    )


def time_of(found: PiView) -> Chart:
    """Of a pi run that has ended: how long each number of samples took."""
    return Chart(
        id="times",
        title="Time against samples",
        hint="When how many samples were drawn, counted from the first chunk. Straight: no worker tired or left.",
        empty="was not written down in this run",
        series=(Series("time", thinned([(point.samples, point.seconds) for point in _curve(found)]), 0),),
        x_label="samples drawn",
        y_label="time",
        x_unit="samples",
        y_unit="seconds",
        from_zero=True,
    )


def unit_of(view: RunView) -> str:
    """What its workers work off."""
    return "samples" if view.job == "pi" else "windows"


def place_of(task: str) -> tuple[str, int]:
    """So that worker:10 comes after worker:9."""
    role, _, number = task.partition(":")
    return role, int(number) if number.isdigit() else 0
