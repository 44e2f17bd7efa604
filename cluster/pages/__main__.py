"""`python -m cluster.pages --run A`: make a run's or sweep's report again, or compare runs."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import fmean, stdev

from cluster.pages import report_of
from cluster.pages.charts import (
    Chart,
    Series,
    chart,
    chart_of_figure,
    thinned,
    times_chart,
    times_of,
)
from cluster.pages.drawing import environment
from cluster.pages.files import REPORT, ROWS, StoredRun, number_of, run_of
from cluster.pages.report import settings_of
from cluster.pages.run_charts import MOST_OTHER_CHARTS, NAMING, NO_TRAINING, others_of, unit_of
from cluster.pages.words import (
    RECORDINGS,
    duration,
    figure_word,
    glossary,
    measure,
    writer_of,
)
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.ground.files import atomic_write
from core.logs import say
from core.status.parts import FIGURE_KEYS, MOST_OTHERS
from core.status.view import EpochView

COMPARISON = "comparison.html"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file and say where it lies; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cluster.pages", description=__doc__)
    parser.add_argument(
        "--run",
        action="append",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="a run's folder (repeatable)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"the file to write; else {REPORT} in the run, or ./{COMPARISON}",
    )
    options = parser.parse_args(arguments)
    try:
        say(f"report: {write(options.run, options.out)}")
    except ClusterError as problem:
        say(problem, error=True)
        return int(problem.exit_code)
    return ExitCode.DONE


def write(folders: Sequence[Path], out: Path | None) -> Path:
    """The report of one run or one sweep, or of several runs side by side; where it lies.

    Raises ClusterError.
    """
    twice = sorted({str(folder) for folder in folders if list(folders).count(folder) > 1})
    if twice:
        raise UsageError(f"--run: expected different runs, got {', '.join(twice)} more than once")
    if len(folders) == 1:
        text = report_of(folders[0])
        path = folders[0] / REPORT
    else:
        text = comparison([run_of(folder) for folder in folders])
        path = Path(COMPARISON)
    path = out or path
    atomic_write(path, text.encode(errors="backslashreplace"))
    return path


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
        letters = " ".join(with_letters.letter for with_letters in self.runs)
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
    named_runs = with_letters(runs)
    groups = groups_of(named_runs)
    seeds = [group for group in groups if len(group.runs) > 1]
    times = times_of(runs)
    charts = [
        *_curves(groups, _unit(named_runs)),
        *([times_chart(times)] if times.measured else []),
    ]
    return (
        environment()
        .get_template("compare.html")
        .render(
            title=f"{len(named_runs)} runs side by side",
            runs=named_runs,
            groups=seeds,
            charts=[chart for chart in charts if not chart.is_empty],
            figures=_figures(named_runs, seeds),
            settings=differences(named_runs),
            crosswise=len(named_runs) > MOST_COLUMNS,
            times=times if times.measured else None,
            glossary=glossary(_unit(named_runs)),
        )
    )


def with_letters(runs: Sequence[StoredRun]) -> list[Named]:
    """The runs with their letters."""
    letters = [*LETTERS, *(first + second for first in LETTERS for second in LETTERS)]
    return [
        Named(letter, run, settings_of(run)) for letter, run in zip(letters, runs, strict=False)
    ]


def groups_of(runs: Sequence[Named]) -> list[Replicates]:
    """The groups, in the order of their first runs."""
    members_of: dict[tuple[str, frozenset[tuple[str, str]]], list[Named]] = {}
    for named_run in runs:
        alike = frozenset(
            (key, value) for key, value in named_run.settings.items() if key not in OF_THE_SEED
        )
        members_of.setdefault((named_run.run.view.job, alike), []).append(named_run)
    return [Replicates(tuple(members)) for members in members_of.values()]


def differences(runs: Sequence[Named]) -> list[Difference]:
    """Return every setting, those that differ first."""
    compared_settings = []
    for key in dict.fromkeys(key for named_run in runs for key in named_run.settings):
        values = tuple(named_run.settings.get(key, "not set") for named_run in runs)
        compared_settings.append(Difference(key, values, len(set(values)) > 1))
    return sorted(compared_settings, key=lambda difference: not difference.differs)


AFTER_OTHERS = 3
"""Place of the first line behind the figures of the test set."""


def _figures(runs: Sequence[Named], groups: Sequence[Replicates]) -> list[Compared]:
    def line(
        name: str, hint: str, written: Written, of: Callable[[StoredRun], float | None]
    ) -> Compared:
        spreads = []
        for group in groups:
            values = [
                value
                for value in (of(named_run.run) for named_run in group.runs)
                if value is not None
            ]
            spreads.append((fmean(values), stdev(values)) if len(values) > 1 else None)
        return Compared(
            name, hint, written, tuple(of(named_run.run) for named_run in runs), tuple(spreads)
        )

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
    meanings = {name: figure_word(name) for name in _custom_names(runs)}
    custom_figures = [
        line(word.word, word.hint or "on the test set", measure, _in_result("final", name))
        for name, word in meanings.items()
    ]
    figures = [time, *usual[:AFTER_OTHERS], *custom_figures, *usual[AFTER_OTHERS:]]
    return [compared for compared in figures if any(value is not None for value in compared.values)]


def _unit(runs: Sequence[Named]) -> str:
    """Return what the workers of these runs work off, in one word."""
    units = {
        unit_of(named_run.run.view) for named_run in runs if named_run.run.view.job != "pi"
    } or {RECORDINGS}
    if len(units) == 1:
        return units.pop()
    return "examples"


def _custom_names(runs: Sequence[Named]) -> list[str]:
    """Names of the figures that only the task or the app of some run has."""
    names = dict.fromkeys(
        name for named_run in runs for name in named_run.run.view.figures.get("test", {})
    )
    return [name for name in names if name not in FIGURE_KEYS][:MOST_OTHERS]


def _in_result(*keys: str) -> Callable[[StoredRun], float | None]:
    return lambda run: number_of(run.result, *keys)


def _curves(groups: Sequence[Replicates], unit: str) -> list[Chart]:
    trained = [group for group in groups if group.runs[0].run.view.train is not None]
    single = [Replicates((named_run,)) for group in groups for named_run in group.runs]
    views = [named_run.run.view for group in trained for named_run in group.runs]
    names = dict.fromkeys(name for view in views for name in others_of(view.train or NO_TRAINING))
    custom_charts = [
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
        if all(named_run.run.view.task_type not in NAMING for named_run in group.runs)
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
    return [*usual, *custom_charts, chart("compared-throughput", *speeds, unit=unit)]


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
        lines = [
            points for points in (points_of(named_run.run) for named_run in group.runs) if points
        ]
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


if __name__ == "__main__":
    sys.exit(main())
