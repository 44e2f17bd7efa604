"""The page of several runs side by side: their figures, curves and settings.

Runs that differ in their seed alone form a group. Several pi runs have a table of time against
samples, by number of workers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import fmean, stdev
from typing import Any

from markupsafe import Markup

from cluster.pages.charts import (
    CHARTS,
    Chart,
    Series,
    banded,
    chart,
    chart_of_figure,
    mean_points,
    thinned,
)
from cluster.pages.drawing import environment
from cluster.pages.facts import settings_of
from cluster.pages.files import StoredRun
from cluster.pages.rows import (
    MOST_FIGURES,
    NAMING,
    ROWS,
    Row,
    TableSection,
    keys_of,
    number_at,
    points_of,
    table_of,
    value_at,
)
from cluster.pages.special import unit_of
from cluster.pages.words import (
    NOTHING,
    RECORDINGS,
    code,
    duration,
    figure_word,
    glossary,
    hint,
    short,
    spread,
    writer_of,
)
from core.status.parts import FIGURE_KEYS, MOST_OTHERS
from core.status.view import RunView

MOST_LINES = 6
"""Runs with a line each in a chart of moments; a chart of more would show nothing."""
MOST_COLUMNS = 6
"""Runs with a column each; of more runs each has a row."""
TIMES_HINT = (
    "The whole job, its start included; in brackets how many times as fast as one worker."
    " ≈: passed on the way to more samples."
)
DIFFERS = Markup('<span class="unseen"> (differs)</span>')
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


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
        letters = " ".join(named_run.letter for named_run in self.runs)
        if len(self.runs) == 1:
            return letters
        return f"{letters}, {len(self.runs)} runs"

    @property
    def views(self) -> list[RunView]:
        """The pictures of its runs."""
        return [named_run.run.view for named_run in self.runs]

    @property
    def names_classes(self) -> bool:
        """Whether answers of a run are right or wrong."""
        return any(view.task_type in NAMING for view in self.views)


def comparison(runs: Sequence[StoredRun]) -> str:
    """The whole file."""
    named_runs = with_letters(runs)
    groups = groups_of(named_runs)
    seeds = [group for group in groups if len(group.runs) > 1]
    unit = _unit(runs)
    times = times_of(runs)
    charts = [*_curves(groups, unit), times_chart(times)]
    names = "; ".join(group.name for group in seeds)
    if seeds:
        group_note = f" Runs that differ in their seed alone form a group: {names}."
    else:
        group_note = ""
    root = {"computed": {"runs": named_runs}, "words": {"groups": group_note}}
    differing, same = differences(named_runs)
    return (
        environment()
        .get_template("compare.html")
        .render(
            title=f"{len(named_runs)} runs side by side",
            charts=[chart for chart in charts if not chart.is_empty],
            tables={
                "runs": table_of("runs", root),
                "figures": _figures(named_runs, seeds, differing, unit),
                "times": _times_table(times),
                "settings": _settings(named_runs, differing, same),
            },
            glossary=glossary(unit),
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
    members_of: dict[Any, list[Named]] = {}
    for named_run in runs:
        alike = frozenset({**named_run.settings, "seed": ""}.items())
        members_of.setdefault((named_run.run.view.job, alike), []).append(named_run)
    return [Replicates(tuple(members)) for members in members_of.values()]


def differences(runs: Sequence[Named]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return each setting with its values in the runs: those that differ, and the others."""
    differing: dict[str, list[str]] = {}
    same: dict[str, list[str]] = {}
    for key in dict.fromkeys(key for named_run in runs for key in named_run.settings):
        values = [named_run.settings.get(key, "not set") for named_run in runs]
        if len({*values}) > 1:
            differing[key] = values
        else:
            same[key] = values
    return differing, same


def _settings(
    runs: Sequence[Named], differing: Mapping[str, list[str]], same: Mapping[str, list[str]]
) -> TableSection:
    if len(runs) > MOST_COLUMNS:
        note = "Those that differ stand with the figures above; these are the same in all of them."
        heads = ["key", "in all runs"]
        rows = [[code(key), values[0]] for key, values in same.items()]
        return TableSection("settings", "Settings", note, heads, rows, "words long")
    note = "Settings that differ come first and are shaded."
    heads = ["key", *(named_run.letter for named_run in runs)]
    rows = [[code(key) + DIFFERS, *values] for key, values in differing.items()]
    rows += [[code(key), *values] for key, values in same.items()]
    return TableSection(
        "settings", "Settings", note, heads, rows, "words long", shaded=len(differing)
    )


def _figures(
    runs: Sequence[Named],
    groups: Sequence[Replicates],
    differing: Mapping[str, list[str]],
    unit: str,
) -> TableSection:
    """A row for each figure that a run has; a row for each run where they are many."""
    crosswise = len(runs) > MOST_COLUMNS
    lines = [["run" if crosswise else "figure"]]
    lines[0] += [named_run.letter for named_run in runs] + [group.name for group in groups]
    if crosswise:
        lines += [[key, *values, *("" for _ in groups)] for key, values in differing.items()]
    for row in _compared(runs, unit):
        write = writer_of(row["as"])
        values = {named_run.letter: _number(named_run.run, row) for named_run in runs}
        if not any(value is not None for value in values.values()):
            continue
        name = row["name"]
        if row["hint"] and not crosswise:
            name = Markup("{} {}").format(name, hint(row["hint"]))
        means = [_mean([values[run.letter] for run in group.runs], write) for group in groups]
        lines.append([name, *map(write, values.values()), *means])
    heads, *rows = zip(*lines, strict=True) if crosswise else lines
    note = "A dash: the run has no such figure."
    if groups:
        note = f"Mean ± standard deviation for each group. {note}"
    return TableSection("figures", "Figures", note, heads, rows)


def _compared(runs: Sequence[Named], unit: str) -> Iterator[Row]:
    """Yield the rows of figures; after those of the test set, those that only some tasks have."""
    for row in ROWS["compared"]:
        if "figures" not in row:
            yield {**row, "name": row["name"].format(unit=unit)}
            continue
        tests = (named_run.run.view.figures.get("test", {}) for named_run in runs)
        names = dict.fromkeys(name for test in tests for name in test if name not in FIGURE_KEYS)
        for name in [*names][:MOST_OTHERS]:
            word, meaning = figure_word(name)
            path = [*row["figures"].split("."), name]
            yield {**row, "name": word, "hint": meaning or row["hint"], "of": path}


def _number(run: StoredRun, row: Row) -> float | None:
    root = {"result": run.result, "computed": {"seconds": run.view.elapsed_seconds or None}}
    return number_at(root, row["of"])


def _mean(values: Iterable[float | None], write: Callable[[float], str]) -> str:
    numbers = [value for value in values if value is not None]
    if len(numbers) > 1:
        return spread(write(fmean(numbers)), write(stdev(numbers)))
    return NOTHING


def _unit(runs: Sequence[StoredRun]) -> str:
    """Return what the workers of these runs work off, in one word."""
    units = {unit_of(run.view) for run in runs if run.view.job != "pi"} or {RECORDINGS}
    if len(units) == 1:
        return units.pop()
    return "examples"


def _curves(groups: Sequence[Replicates], unit: str) -> Iterator[Chart]:
    """Yield the charts that lay the curves of runs over each other."""
    trained = [group for group in groups if group.runs[0].run.view.train is not None]
    single = [Replicates((named_run,)) for group in groups for named_run in group.runs]
    for name in ROWS["compared_charts"]:
        row = CHARTS[name]
        if "charts_each" in row:
            epochs = (value_at(view, row["over"]) for group in trained for view in group.views)
            keys = keys_of(chain.from_iterable(epochs), row["charts_each"])
            for place, key in enumerate(keys[:MOST_FIGURES]):
                lines = _laid_over(trained, row, key)
                yield chart_of_figure(name, place, key, *lines, unit=unit)
            continue
        drawn = trained
        if row["over"] == "samples":
            if len(single) <= MOST_LINES:
                drawn = single
            else:
                drawn = []
        elif row.get("naming") is False:
            drawn = [group for group in trained if not group.names_classes]
        yield chart(name, *_laid_over(drawn, row), unit=unit)


def _laid_over(groups: Sequence[Replicates], row: Row, key: str | None = None) -> list[Series]:
    """A line for each group; a band from the lowest to the highest where it has several runs."""
    series: list[Series] = []
    for color, group in enumerate(groups):
        curves = [points_of(view, row, key) for view in group.views]
        values = dict[float, list[float]]()
        for x, y in chain.from_iterable(curves):
            values.setdefault(x, []).append(y)
        if sum(map(bool, curves)) > 1:
            series += banded(group.name, values, color, mean=f"{group.name}: mean")
        elif values:
            series.append(Series(group.name, thinned(mean_points(values)), color))
    return series


SAMPLES = range(10_000_000, 110_000_000, 10_000_000)
"""Samples that have a row even without a run: those of the 2019 thesis."""


@dataclass(frozen=True)
class MeanTime:
    """How long so many workers took for so many samples."""

    seconds: float
    runs: int
    """Runs it is the mean of; 0 where a run passed it on the way to more samples."""


Times = dict[int, dict[int, MeanTime]]
"""Times by workers and samples, each in its order."""


def times_of(runs: Sequence[StoredRun]) -> Times:
    """The mean times of all pi runs among `runs`."""
    by_workers = dict[int, list[StoredRun]]()
    whole = {*SAMPLES}
    for run in runs:
        if run.view.job == "pi" and (workers := int(number_at(run.result, "workers") or 0)):
            by_workers.setdefault(workers, []).append(run)
            if run.view.state == "done":
                whole.add(int(number_at(run.result, "samples") or 0))
    times: Times = {}
    for workers, ran in sorted(by_workers.items()):
        times_by_samples = {samples: _mean_time(samples, ran) for samples in sorted(whole - {0})}
        times[workers] = {
            samples: time for samples, time in times_by_samples.items() if time is not None
        }
    return times


def _mean_time(samples: int, runs: Iterable[StoredRun]) -> MeanTime | None:
    """Return the mean of the runs with so many samples; without one, of those that passed it."""
    whole = []
    passed = []
    for run in runs:
        if run.view.state == "done" and number_at(run.result, "samples") == samples:
            whole.append(run.view.elapsed_seconds)
        elif (at := _when(run, samples)) is not None:
            passed.append(at)
    if whole or passed:
        return MeanTime(fmean(whole or passed), len(whole))
    return None


def _when(run: StoredRun, samples: int) -> float | None:
    """The second at which the run had drawn `samples`, between two that were written down."""
    if run.view.pi:
        points = run.view.pi.points
    else:
        points = ()
    # Points count from the first chunk; what the start and the end of the job took belongs to it as
    # well.
    besides = 0.0
    if points and run.view.state == "done":
        besides = max(0.0, run.view.elapsed_seconds - points[-1].seconds)
    for before, after in pairwise(points):
        if before.samples <= samples <= after.samples and after.samples > before.samples:
            share = (samples - before.samples) / (after.samples - before.samples)
            return besides + before.seconds + share * (after.seconds - before.seconds)
    return None


def _times_table(times: Times) -> TableSection | None:
    """A row for each number of samples that a run got to, a column for each number of workers."""
    rows = []
    for samples in sorted(
        {samples for times_by_samples in times.values() for samples in times_by_samples}
    ):
        alone = times.get(1, {}).get(samples)
        cells = [
            _time_text(times_by_samples.get(samples), alone if workers > 1 else None)
            for workers, times_by_samples in times.items()
        ]
        rows.append([short(samples), *cells])
    if not rows:
        return None
    heads = ["samples", *map(_workers_text, times)]
    return TableSection("times", "Pi: time against samples", TIMES_HINT, heads, rows)


def _time_text(time: MeanTime | None, alone: MeanTime | None) -> str:
    """The time, and how many times as fast as one worker it is."""
    if time is None:
        return NOTHING
    if time.runs:
        text = duration(time.seconds)
    else:
        text = f"≈ {duration(time.seconds)}"
    if time.runs > 1:
        text += f" (mean of {time.runs})"
    if alone is not None and time.seconds > 0:
        faster = f"({alone.seconds / time.seconds:.1f}\N{MULTIPLICATION SIGN})"
        return Markup("{} {}").format(text, hint(faster))
    return text


def _workers_text(workers: int) -> str:
    return f"{workers} worker{'s' if workers > 1 else ''}"


def times_chart(times: Times) -> Chart:
    """Return the times as lines, one for each number of workers."""
    series = [
        Series(
            _workers_text(workers),
            thinned([(samples, time.seconds) for samples, time in times_by_samples.items()]),
            color,
        )
        for color, (workers, times_by_samples) in enumerate(times.items())
    ]
    return chart("times", *series)
