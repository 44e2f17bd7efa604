"""Several runs side by side in one file: what differs, the curves laid over each other, the figures."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Literal

from cluster.pages.charts import Chart, Series, thinned
from cluster.pages.drawing import environment
from cluster.pages.groups import Compared, Group, Named, compared, differences, groups_of, named, result_number
from cluster.pages.numbers import amount, count, duration, figure, percent, short
from cluster.pages.pi_times import times_chart, times_of
from cluster.pages.run_files import Run
from cluster.pages.words import GLOSSARY, run_state
from cluster.status.view import EpochView

MOST_LINES = 6
"""Lines of different colour and dash in a chart; a chart of more runs would show nothing."""
MOST_COLUMNS = 6
"""Runs with a column each; of more runs each has a row."""

Points = list[tuple[float, float]]


def comparison(runs: Sequence[Run]) -> str:
    """The whole file."""
    found = named(runs)
    groups = groups_of(found)
    times = times_of(found)
    charts = [*_curves(groups), *([times_chart(times)] if times.measured else [])]
    return (
        environment()
        .get_template("compare.html")
        .render(
            title=f"{len(found)} runs side by side",
            runs=found,
            groups=[group for group in groups if len(group.runs) > 1],
            meanings={one.letter: run_state(one.run.view.state) for one in found},
            charts=[chart for chart in charts if not chart.is_empty],
            figures=_figures(found, [group for group in groups if len(group.runs) > 1]),
            settings=differences(found),
            crosswise=len(found) > MOST_COLUMNS,
            times=times if times.measured else None,
            glossary=GLOSSARY,
        )
    )


def _figures(runs: Sequence[Named], groups: Sequence[Group]) -> list[Compared]:
    def elapsed(run: Run) -> float | None:
        return run.view.elapsed_seconds or None

    def line(
        name: str, hint: str, written: Callable[[float | None], str], of: Callable[[Run], float | None]
    ) -> Compared:
        return compared(name, hint, written, of, runs, groups)

    accuracy: Callable[[float | None], str] = lambda value: percent(value, 2)  # noqa: E731 - a column's way of writing
    pi_digits: Callable[[float | None], str] = lambda value: figure(value, 7)  # noqa: E731
    found = [
        line("time", "of the whole job", duration, elapsed),
        line(
            "test accuracy", "share of the test windows named correctly", accuracy, result_number("final", "accuracy")
        ),
        line("macro F1", "precision and recall in one", figure, result_number("final", "f1_macro")),
        line("test loss", "how wrong the answers are", figure, result_number("final", "loss")),
        line("chosen epoch", "best on held-out people", count, result_number("selected", "epoch")),
        line("windows a second", "while it trained", short, result_number("throughput", "windows_per_second")),
        line("step", "median", duration, result_number("throughput", "step_seconds_p50")),
        line("staleness", "mean, in updates", figure, result_number("staleness", "mean")),
        line("updates applied", "", count, result_number("updates", "applied")),
        line("pulled a step", "bytes, from the servers", amount, result_number("wire", "pull_bytes_per_step")),
        line("pushed a step", "bytes, to the servers", amount, result_number("wire", "push_bytes_per_step")),
        line("resumptions", "times the job was resumed", count, result_number("resumptions")),
        line("samples", "random points drawn", short, result_number("samples")),
        line("estimate of pi", "", pi_digits, result_number("estimate")),
        line("standard error", "of the estimate", pi_digits, result_number("standard_error")),
    ]
    return [one for one in found if any(value is not None for value in one.values)]


def _curves(groups: Sequence[Group]) -> list[Chart]:
    trained = [group for group in groups if group.runs[0].run.view.train is not None]
    shown = [Group((one,)) for group in groups for one in group.runs]
    if len(shown) > MOST_LINES:
        shown = []
    return [
        _laid_over(
            trained, "loss", "Training loss", "The mean of each epoch; lower is better.", "loss", "number",
            _by_epoch(lambda epoch: epoch.loss),
        ),
        _laid_over(
            trained, "validation", "Accuracy for held-out people", "After each epoch; higher is better.",
            "share of the windows", "ratio", _by_epoch(lambda epoch: epoch.validation_accuracy),
        ),
        _laid_over(
            trained, "accuracy", "Training accuracy", "In each epoch; higher is better.", "share of the windows",
            "ratio", _by_epoch(lambda epoch: epoch.accuracy),
        ),
        _laid_over(
            shown, "throughput", "Throughput", "Windows (of pi: samples) a second, all workers of the run together.",
            "a second", "number", _speeds, by_time=True,
        ),
    ]  # fmt: skip


def _by_epoch(of: Callable[[EpochView], float | None]) -> Callable[[Run], Points]:
    def points(run: Run) -> Points:
        epochs = run.view.train.epochs if run.view.train else ()
        values = [(at, of(epoch)) for at, epoch in enumerate(epochs, 1)]
        return [(float(at), value) for at, value in values if value is not None]

    return points


def _speeds(run: Run) -> Points:
    return [(sample.seconds, sample.windows_per_second) for sample in run.view.samples]


def _laid_over(
    groups: Sequence[Group],
    name: str,
    title: str,
    hint: str,
    y_label: str,
    y_unit: Literal["number", "ratio"],
    points_of: Callable[[Run], Points],
    by_time: bool = False,
) -> Chart:
    series: list[Series] = []
    for color, group in enumerate(groups):
        lines = [points for points in (points_of(one.run) for one in group.runs) if points]
        if len(lines) < 2:
            series += [Series(group.name, thinned(points), color) for points in lines]
            continue
        places = sorted({x for points in lines for x, _ in points})
        at = {x: [dict(points)[x] for points in lines if x in dict(points)] for x in places}
        series.append(Series(f"{group.name}: lowest to highest", thinned(_band(at)), color, "band"))
        series.append(Series(f"{group.name}: mean", thinned([(x, fmean(values)) for x, values in at.items()]), color))
    return Chart(
        id=name,
        title=title,
        hint=hint,
        empty="was not written down in these runs",
        series=tuple(series),
        x_label="time since the start" if by_time else "epoch",
        y_label=y_label,
        x_unit="seconds" if by_time else "epoch",
        y_unit=y_unit,
        from_zero=by_time,
    )


def _band(at: dict[float, list[float]]) -> list[tuple[float | None, ...]]:
    return [(x, min(values), max(values)) for x, values in at.items()]
