"""The page of a sweep in one file: its runs by settings, their figures and charts.

A chart shows a figure against the setting with the most values.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from cluster.pages.charts import Chart, Series, banded, chart, mean_points, thinned
from cluster.pages.drawing import environment
from cluster.pages.files import HELD_OUT, OVER, SweepGroup, SweepRecord, read_sweep
from cluster.pages.rows import TableSection, table_of, tiles_of
from cluster.pages.words import (
    NOTHING,
    code,
    count,
    figure_word,
    percent,
    shown,
    spread,
    sweep_state,
    writer_of,
)
from core.status.parts import FIGURE_KEYS

MOST_LINES = 6
"""Lines of different colour and dash in a chart."""
MOST_CHARTS = 12
MOST_BARS = 60
LONGEST_VALUE = 60
PREFIXES = ("jobs.train.", "model.")
DRAWN = ("accuracy", "loss")
"""Figures that are drawn: the first one that a run has."""
MOST_ROWS = 500
MOST_FAILED = 50
MOST_OTHERS = 4
COLUMNS = {
    "accuracy": ("accuracy", "percent 2"),
    "f1_macro": ("macro F1", "figure"),
    "precision_macro": ("precision", "figure"),
    "recall_macro": ("recall", "figure"),
    "loss": ("loss", "measure"),
    HELD_OUT: ("held-out accuracy", "percent 2"),
    "seconds": ("time", "duration"),
}
"""Figures with a column, in its order: its head, and how they are written."""


def sweep_page(folder: Path) -> str:
    """The whole file, from `sweep.json` of the folder.

    Raises UsageError for a folder that holds no sweep.
    """
    sweep = read_sweep(folder)
    root = root_of_sweep(sweep)
    return (
        environment()
        .get_template("sweep.html")
        .render(
            title=f"Sweep {sweep.name}",
            sweep=sweep,
            tiles=tiles_of("sweep", root),
            table=table_of_sweep(sweep),
            charts=[chart for chart in charts_of_sweep(sweep) if not chart.is_empty],
            failed=table_of("failed", root),
        )
    )


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
    texts = (f"{short_key(key)} {value_text(value)}" for key, value in settings.items())
    return ", ".join(texts) or "as in its base"


def charts_of_sweep(sweep: SweepRecord) -> list[Chart]:
    """Return lines over the number with the most values, and bars where no setting is a number.

    As many combinations of the other settings as fit share a chart.
    """
    name = next((name for name in DRAWN if any(group.values(name) for group in sweep.groups)), None)
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
    items = [*lines.items()][: MOST_LINES * MOST_CHARTS]
    for at in range(0, len(items), MOST_LINES):
        series: list[Series] = []
        for color, (title, groups) in enumerate(items[at : at + MOST_LINES]):
            values = dict[float, list[float]]()
            for group in groups:
                if runs := group.values(name):
                    values.setdefault(float(group.settings[across]), []).extend(runs)
            if any(len(runs) > 1 for runs in values.values()):
                series += banded(title, values, color, mean=title)
            else:
                series.append(Series(title, thinned(mean_points(values)), color))
        texts = {"across": short_key(across)}
        place = f"sweep-{at // MOST_LINES}"
        charts.append(chart(f"sweep-{name}", *series, texts=texts, id=place))
    return charts


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def _bars(sweep: SweepRecord, name: str) -> Chart:
    groups = [group for group in sweep.groups if group.values(name)][:MOST_BARS]
    bars = Series("ours", thinned([(at, group.mean(name)) for at, group in enumerate(groups)]))
    labels = tuple(settings_text(group.settings) for group in groups)
    return chart(f"sweep-{name}-bars", bars, id="sweep-0", labels=labels)


def root_of_sweep(sweep: SweepRecord) -> dict[str, Any]:
    """What the rows of its page show."""
    failed = [run for run in sweep.runs if run.state == "failed" or run.error]
    runs = [{"run": run, "settings": settings_text(run.settings)} for run in failed[:MOST_FAILED]]
    more = len(failed) - len(runs)
    computed: dict[str, Any] = {
        "over": sum(run.state in OVER for run in sweep.runs),
        "runs": len(sweep.runs),
        "seeds": len(sweep.seeds),
        "seconds": sum(run.seconds for run in sweep.runs),
        "nodes": len({run.node for run in sweep.runs} - {None}),
        "failed": runs,
    }
    texts = {
        "trained": "trained the runs",
        "left_out": f" {count(more)} more are in sweep.json." if more else "",
    }
    if sweep.placement == "node":
        texts["trained"] = "trained one run each at a time"
    means = [mean for group in sweep.groups if (mean := group.mean("accuracy")) is not None]
    if means:
        computed["range"] = f"{percent(min(means))} to {percent(max(means))}"
    held_out = [group for group in sweep.groups if group.values(HELD_OUT)]
    if held_out:
        best = max(held_out, key=lambda group: group.mean(HELD_OUT) or 0.0)
        texts["test"] = percent(best.mean("accuracy"), 2)
        texts["best"] = computed["best"] = settings_text(best.settings)
        computed["chosen"] = best.mean(HELD_OUT)
    return {"computed": computed, "words": texts}


def table_of_sweep(sweep: SweepRecord) -> TableSection:
    """The table of the page: a row for each choice of settings."""
    keys = [axis.key for axis in sweep.varied]
    columns = _columns(sweep)
    groups = sweep.groups[:MOST_ROWS]
    hint = (
        "Figures of the test set, mean ± standard deviation over the seeds that have ended. A dash:"
        " no run has it yet."
    )
    if len(sweep.groups) > MOST_ROWS:
        more = count(len(sweep.groups) - MOST_ROWS)
        hint += f" {more} more choices of settings are in sweep.json."
    heads: list[str] = ["runs", *(code(short_key(key)) for key in keys)]
    heads += [head for head, _ in columns.values()]
    rows = [_row(group, keys, columns) for group in groups]
    return TableSection("runs", "Results", hint, heads, rows, look="sweep", empty="No run yet.")


def _columns(sweep: SweepRecord) -> dict[str, tuple[str, str]]:
    """Return the usual figures that are known, then the task's own."""
    had = dict.fromkeys(
        name for run in sweep.runs for name, value in (run.final or {}).items() if value is not None
    )
    figure_columns = {*had, "seconds"}
    if any(group.values(HELD_OUT) for group in sweep.groups):
        figure_columns.add(HELD_OUT)
    columns = {name: column for name, column in COLUMNS.items() if name in figure_columns}
    for name in [name for name in had if name not in FIGURE_KEYS][:MOST_OTHERS]:
        columns.setdefault(name, (figure_word(name)[0], "measure"))
    return columns


def _row(
    group: SweepGroup, keys: Sequence[str], columns: Mapping[str, tuple[str, str]]
) -> list[str]:
    states = Counter[str](run.state for run in group.runs)
    counts = [f"{len(group.ended)} of {len(group.runs)}"]
    counts += [
        f"{states[state]} {state}" for state in ("failed", "pruned", "running") if states[state]
    ]
    sign = shown(sweep_state(_state(group, states)))
    cells: list[str] = [Markup("{} {}").format(sign, ", ".join(counts))]
    for key in keys:
        cells.append(value_text(group.settings[key]) if key in group.settings else NOTHING)
    for name, (_, how) in columns.items():
        write = writer_of(how)
        deviation = group.spread(name)
        mean = write(group.mean(name))
        cells.append(mean if deviation is None else spread(mean, write(deviation)))
    return cells


def _state(group: SweepGroup, states: Counter[str]) -> str:
    for state in ("failed", "running"):
        if states[state]:
            return state
    if states.keys() <= {"finished", "pruned"}:
        if group.ended:
            return "finished"
        return "pruned"
    if group.ended:
        return "running"
    return "waiting"
