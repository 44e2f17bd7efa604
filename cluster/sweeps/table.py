"""The results of a sweep, as rows: mean and spread over the seeds of each setting. Pure."""

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.pages.files import RunRecord, SweepRecord

VALIDATION = "validation_"
"""Begins the names of the figures on the validation, which may choose; the others are of the test
set."""
SHOWN = ("accuracy", "f1_macro", "loss", "validation_accuracy")
"""Figures at the terminal; the CSV file has every one."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a sample (n - 1; null for one) over `count` runs."""

    mean: float
    deviation: float | None
    count: int

    def words(self, digits: int = 4) -> str:
        """`0.9123 ± 0.0021`."""
        if self.deviation is None:
            beside = ""
        else:
            beside = f" ± {self.deviation:.{digits}f}"
        return f"{self.mean:.{digits}f}{beside}"


@dataclass(frozen=True)
class Row:
    """The runs of one setting: how many are finished, and the spread of each figure over those."""

    settings: Mapping[str, Any]
    runs: int
    finished: int
    figures: Mapping[str, Spread]
    seconds: Spread | None


def rows_of(record: SweepRecord) -> tuple[Row, ...]:
    """A row for each setting, in the order of the runs."""
    return tuple(_row(group.runs) for group in record.groups)


def _row(runs: Sequence[RunRecord]) -> Row:
    done = [run for run in runs if run.state == "finished" and run.final is not None]
    figures_of_runs = [figures_of(run) for run in done]
    names = dict.fromkeys(name for run_figures in figures_of_runs for name in run_figures)
    figures = {}
    for name in names:
        values = [
            value for run_figures in figures_of_runs if (value := run_figures.get(name)) is not None
        ]
        if values:
            figures[name] = spread(values)
    seconds = [run.seconds for run in done]
    return Row(
        runs[0].settings, len(runs), len(done), figures, spread(seconds) if seconds else None
    )


def figures_of(run: RunRecord) -> dict[str, float | None]:
    """Return all figures of a run: on the test set, and on the validation under a longer name."""
    return {
        **(run.final or {}),
        **{f"{VALIDATION}{name}": value for name, value in (run.selected or {}).items()},
    }


def spread(values: Sequence[float]) -> Spread:
    """Return the mean and spread of at least one value; their order changes no bit."""
    return Spread(
        statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values)
    )


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return each key's last words that distinguish it: `hidden` for `...model.hidden`."""
    names = {}
    for key in keys:
        segments = key.split(".")
        ends = [".".join(segments[-count:]) for count in range(1, len(segments) + 1)]
        names[key] = next(
            end
            for end in ends
            if sum(other == end or other.endswith(f".{end}") for other in keys) == 1 or end == key
        )
    return names


def in_words(settings: Mapping[str, Any]) -> str:
    """`hidden 8, batch_size 50`; empty without any."""
    names = short_names(list(settings))
    return ", ".join(f"{names[key]} {json.dumps(value)}" for key, value in settings.items())


def csv_of(record: SweepRecord) -> str:
    """Return `table.csv`: a line a setting, of each figure the mean and the deviation.

    A cell is empty where there is none.
    """
    rows = rows_of(record)
    keys = list(dict.fromkeys(key for row in rows for key in row.settings))
    figures = list(dict.fromkeys(name for row in rows for name in row.figures))
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    named = [f"{name}_{part}" for name in (*figures, "seconds") for part in ("mean", "deviation")]
    writer.writerow([*keys, "runs", "finished", *map(_cell, named)])
    for row in rows:
        cells = [_cell(row.settings.get(key)) for key in keys]
        for of_figure in (*(row.figures.get(name) for name in figures), row.seconds):
            cells += (
                ["", ""]
                if of_figure is None
                else [_cell(of_figure.mean), _cell(of_figure.deviation)]
            )
        writer.writerow([*cells[: len(keys)], row.runs, row.finished, *cells[len(keys) :]])
    return lines.getvalue()


def text_table(record: SweepRecord) -> list[list[str]]:
    """Header and rows for a terminal."""
    rows = rows_of(record)
    keys = list(dict.fromkeys(key for row in rows for key in row.settings))
    names = short_names(keys)
    figures = [name for name in SHOWN if any(name in row.figures for row in rows)]
    table = [[*(names[key] for key in keys), "runs", *figures, "seconds"]]
    for row in rows:
        cells = [_cell(row.settings.get(key)) for key in keys]
        if row.finished == row.runs:
            count = str(row.finished)
        else:
            count = f"{row.finished} of {row.runs}"
        figure_cells = [
            figure_spread.words() if (figure_spread := row.figures.get(name)) else "-"
            for name in figures
        ]
        table.append(
            [*cells, count, *figure_cells, "-" if row.seconds is None else row.seconds.words(1)]
        )
    return table


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value)
    # A spreadsheet takes such a text for a formula.
    if isinstance(value, str) and text[:1] in ("=", "+", "-", "@"):
        return f"'{text}"
    return text
