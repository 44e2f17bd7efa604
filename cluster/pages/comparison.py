"""Several runs side by side in one file: what differs, their curves, their figures.

Runs that differ in their seed alone belong to one group.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from statistics import fmean, stdev

from cluster.pages.charts import Chart, Series, chart, chart_of_figure, thinned
from cluster.pages.drawing import environment
from cluster.pages.pi_times import times_chart, times_of
from cluster.pages.report import settings_of
from cluster.pages.run_charts import MOST_OTHER_CHARTS, NAMING, NO_TRAINING, others_of, unit_of
from cluster.pages.run_files import ROWS, StoredRun, number_of
from cluster.pages.words import (
    RECORDINGS,
    duration,
    figure_word,
    glossary,
    measure,
    writer_of,
)
from core.status.parts import FIGURE_KEYS, MOST_OTHERS
from core.status.view import EpochView

MOST_LINES = 6
"""Lines of different colour and dash in a chart; a chart of more runs would show nothing."""
MOST_COLUMNS = 6
"""Runs with a column each; of more runs each has a row."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
OF_THE_SEED = frozenset({"seed"})
"""Settings that runs of one group may differ in."""

Points = list[tuple[float, float]]
Written = Callable[[float | None], str]


@dataclass(frozen=True)
class Named:
    """A run with the letter it has on the page."""

    letter: str
    run: StoredRun
    settings: dict[str, str]


@dataclass(frozen=True)
class Replicates:
    """Runs of one job that differ in their seed at most."""

    runs: tuple[Named, ...]

    @property
    def name(self) -> str:
        """`A`, or `A B C, 3 runs`."""
        letters = " ".join(named.letter for named in self.runs)
        if len(self.runs) == 1:
            return letters
        return f"{letters}, {len(self.runs)} runs"


@dataclass(frozen=True)
class Difference:
    """A setting and its value in each run."""

    key: str
    values: tuple[str, ...]
    differs: bool


@dataclass(frozen=True)
class Compared:
    """A figure of each run, and of each group its mean and spread; None where a run has none."""

    name: str
    hint: str
    written: Written
    values: tuple[float | None, ...]
    groups: tuple[tuple[float, float] | None, ...]
    """Mean and sample standard deviation, of groups of two and more."""


def comparison(runs: Sequence[StoredRun]) -> str:
    """The whole file."""
    found = named(runs)
    groups = groups_of(found)
    seeds = [group for group in groups if len(group.runs) > 1]
    times = times_of(runs)
    charts = [*_curves(groups, _unit(found)), *([times_chart(times)] if times.measured else [])]
    return (
        environment()
        .get_template("compare.html")
        .render(
            title=f"{len(found)} runs side by side",
            runs=found,
            groups=seeds,
            charts=[chart for chart in charts if not chart.is_empty],
            figures=_figures(found, seeds),
            settings=differences(found),
            crosswise=len(found) > MOST_COLUMNS,
            times=times if times.measured else None,
            glossary=glossary(_unit(found)),
        )
    )


def named(runs: Sequence[StoredRun]) -> list[Named]:
    """The runs with their letters."""
    letters = [*LETTERS, *(first + second for first in LETTERS for second in LETTERS)]
    return [
        Named(letter, run, settings_of(run)) for letter, run in zip(letters, runs, strict=False)
    ]


def groups_of(runs: Sequence[Named]) -> list[Replicates]:
    """The groups, in the order of their first runs."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], list[Named]] = {}
    for one in runs:
        alike = frozenset(
            (key, value) for key, value in one.settings.items() if key not in OF_THE_SEED
        )
        found.setdefault((one.run.view.job, alike), []).append(one)
    return [Replicates(tuple(members)) for members in found.values()]


def differences(runs: Sequence[Named]) -> list[Difference]:
    """Every setting, those that differ first."""
    found = []
    for key in dict.fromkeys(key for one in runs for key in one.settings):
        values = tuple(one.settings.get(key, "not set") for one in runs)
        found.append(Difference(key, values, len(set(values)) > 1))
    return sorted(found, key=lambda difference: not difference.differs)


AFTER_OTHERS = 3
"""Place of the first line behind the figures of the test set."""


def _figures(runs: Sequence[Named], groups: Sequence[Replicates]) -> list[Compared]:
    def line(
        name: str, hint: str, written: Written, of: Callable[[StoredRun], float | None]
    ) -> Compared:
        spreads = []
        for group in groups:
            known = [value for value in (of(one.run) for one in group.runs) if value is not None]
            spreads.append((fmean(known), stdev(known)) if len(known) > 1 else None)
        return Compared(name, hint, written, tuple(of(one.run) for one in runs), tuple(spreads))

    time = line("time", "of the whole job", duration, lambda run: run.view.elapsed_seconds or None)
    unit = _unit(runs)
    usual = [
        line(
            row["name"].format(unit=unit),
            row["hint"],
            writer_of(row["as"]),
            _in_result(*row["of"]),
        )
        for row in ROWS["compared"]
    ]
    words = {name: figure_word(name) for name in _others(runs)}
    others = [
        line(word.word, word.hint or "on the test set", measure, _in_result("final", name))
        for name, word in words.items()
    ]
    found = [time, *usual[:AFTER_OTHERS], *others, *usual[AFTER_OTHERS:]]
    return [one for one in found if any(value is not None for value in one.values)]


def _unit(runs: Sequence[Named]) -> str:
    """What the workers of these runs work off, in one word."""
    units = {unit_of(one.run.view) for one in runs if one.run.view.job != "pi"} or {RECORDINGS}
    if len(units) == 1:
        return units.pop()
    return "examples"


def _others(runs: Sequence[Named]) -> list[str]:
    """Names of the figures that only the task or the app of some run has."""
    names = dict.fromkeys(name for one in runs for name in one.run.view.figures.get("test", {}))
    return [name for name in names if name not in FIGURE_KEYS][:MOST_OTHERS]


def _in_result(*keys: str) -> Callable[[StoredRun], float | None]:
    return lambda run: number_of(run.result, *keys)


def _curves(groups: Sequence[Replicates], unit: str) -> list[Chart]:
    trained = [group for group in groups if group.runs[0].run.view.train is not None]
    single = [Replicates((one,)) for group in groups for one in group.runs]
    views = [one.run.view for group in trained for one in group.runs]
    names = dict.fromkeys(name for view in views for name in others_of(view.train or NO_TRAINING))
    others = [
        chart_of_figure(
            "compared-other",
            place,
            name,
            _laid_over(trained, _by_epoch(partial(_other, name))),
            unit,
        )
        for place, name in enumerate([*names][:MOST_OTHER_CHARTS])
    ]
    unnamed = [
        group
        for group in trained
        if all(one.run.view.task_type not in NAMING for one in group.runs)
    ]
    usual = [
        chart(
            f"compared-{name}",
            *_laid_over(
                unnamed if name == "held-out-loss" else trained, _by_epoch(attrgetter(key))
            ),
            unit=unit,
        )
        for name, key in _CURVES.items()
    ]
    speeds = _laid_over(single if len(single) <= MOST_LINES else [], _speeds)
    return [*usual, *others, chart("compared-throughput", *speeds, unit=unit)]


_CURVES = {
    "loss": "loss",
    "held-out-loss": "validation_loss",
    "validation": "validation_accuracy",
    "precision": "validation_precision_macro",
    "recall": "validation_recall_macro",
    "accuracy": "accuracy",
}
"""Charts over the epochs, and the figure of an epoch that each shows."""


def _other(name: str, epoch: EpochView) -> float | None:
    return epoch.validation_others.get(name)


def _by_epoch(of: Callable[[EpochView], float | None]) -> Callable[[StoredRun], Points]:
    def points(run: StoredRun) -> Points:
        epochs = (run.view.train or NO_TRAINING).epochs
        values = [(at, of(epoch)) for at, epoch in enumerate(epochs, 1)]
        return [(float(at), value) for at, value in values if value is not None]

    return points


def _speeds(run: StoredRun) -> Points:
    return [(sample.seconds, sample.windows_per_second) for sample in run.view.samples]


def _laid_over(
    groups: Sequence[Replicates], points_of: Callable[[StoredRun], Points]
) -> list[Series]:
    series: list[Series] = []
    for color, group in enumerate(groups):
        lines = [points for points in (points_of(one.run) for one in group.runs) if points]
        if len(lines) < 2:
            series += [Series(group.name, thinned(points), color) for points in lines]
            continue
        places = sorted({x for points in lines for x, _ in points})
        at = {x: [dict(points)[x] for points in lines if x in dict(points)] for x in places}
        band = thinned([(x, min(values), max(values)) for x, values in at.items()])
        mean = thinned([(x, fmean(values)) for x, values in at.items()])
        series += [
            Series(f"{group.name}: lowest to highest", band, color, "band"),
            Series(f"{group.name}: mean", mean, color),
        ]
    return series
