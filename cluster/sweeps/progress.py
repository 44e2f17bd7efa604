"""How far a sweep's runs are, and what came out. Pure.

Lines that a run prints, the time that is left, and results as rows: mean and spread over the seeds
of each setting.
"""

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from cluster.pages.files import OVER, RunRecord, SweepRecord
from cluster.sweeps.sweep_file import Search
from core.ground.files import parsed_json
from core.status.view import SweepCellView, SweepView

WORD = "pscluster_run"
"""Begins each line that a run says to its sweep."""
LONGEST_LINE = 4096
LARGEST = 10**12
LONGEST_ERROR = 2000
MOST_FIGURES = 100
LONGEST_FIGURE_NAME = 100
LARGEST_FIGURE = 1e100


@dataclass(frozen=True)
class Advance:
    """Updates that are done, of how many, in this stage of a run."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class Epoch:
    """A finished epoch and the figures of its validation; empty where nothing was held out."""

    epoch: int
    validation: Mapping[str, float]


class MemberOutput:
    """Cuts what a run prints into lines: those for the sweep as messages, others as they are."""

    def __init__(self) -> None:
        self._rest = b""
        self.last = ""
        """The last line of other words: what a failed process said."""

    def add(self, piece: bytes) -> list[Advance | Epoch]:
        """The messages in what came."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._rest = self._rest[-LONGEST_LINE:]
        messages = []
        for line in lines:
            message = message_of(line[:LONGEST_LINE])
            if message is not None:
                messages.append(message)
            elif text := line[:LONGEST_LINE].decode(errors="replace").strip():
                self.last = text
        return messages

    def close(self) -> None:
        """The process has ended: what is left is a line too."""
        if text := self._rest.decode(errors="replace").strip():
            self.last = text
        self._rest = b""


def message_of(line: bytes) -> Advance | Epoch | None:
    """The message in one line; None for any other text."""
    if WORD.encode() not in line:
        return None
    try:
        content: Any = parsed_json(line)[WORD]
        if "epoch" in content:
            validation = figures_of_node(content["validation"])
            figures = {key: float(value) for key, value in validation.items() if value is not None}
            return Epoch(_count(content["epoch"]), figures)
        return Advance(
            str(content["stage"])[:80], _count(content["done"]), _count(content["total"])
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def figures_of_node(figures: Any) -> dict[str, float | None]:
    """Return a node's figures of a run: printable names, numbers that JSON has a word for.

    Others are left out: the sweep's files and pages could not hold them.
    """
    if not isinstance(figures, dict):
        return {}
    plain = (
        (name, value)
        for name, value in figures.items()
        if str(name).isprintable()
        and len(name) <= LONGEST_FIGURE_NAME
        and (value is None or (type(value) in (int, float) and abs(value) <= LARGEST_FIGURE))
    )
    return dict(islice(plain, MOST_FIGURES))


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise ValueError("expected a count")
    return value


def seconds_left(
    runs: Sequence[RunRecord],
    nodes: int,
    elapsed: Mapping[str, tuple[float, Advance | None]],
    to_come: int = 0,
) -> float | None:
    """Return the time until all runs are over, at the speed so far; None while nothing is known.

    `elapsed` has the seconds of each running run since it got its node, and how far it is.
    `to_come` runs are not drawn yet. A run that waits takes the mean of the finished ones, or of
    what the running ones will have taken.
    """
    finished = [run.seconds for run in runs if run.state == "finished"]
    whole = {}
    for name, (seconds, progress) in elapsed.items():
        if progress is not None and progress.done and progress.total:
            whole[name] = seconds * progress.total / progress.done
    if finished:
        usual = statistics.fmean(finished)
    elif whole:
        usual = statistics.fmean(whole.values())
    else:
        usual = None
    if usual is None:
        if any(run.state not in OVER for run in runs) or to_come:
            return None
        return 0.0
    waiting = sum(run.state == "waiting" for run in runs) + to_come
    remaining_seconds = [
        max(0.0, whole.get(name, usual) - seconds) for name, (seconds, _) in elapsed.items()
    ]
    work = waiting * usual + sum(remaining_seconds)
    return max([work / max(1, nodes), *remaining_seconds])


VALIDATION = "validation_"
"""Begins the names of the figures on the validation, which may choose; the others are of the test
set."""
TABLE_FIGURES = ("accuracy", "f1_macro", "loss", "validation_accuracy")
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
    figures = [name for name in TABLE_FIGURES if any(name in row.figures for row in rows)]
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


MOST_CELLS = 1000


def best_of(record: SweepRecord, search: Search) -> RunRecord | None:
    """Return the run with the best value of the search's metric on the validation.

    None before one is finished.
    """
    candidates = [run for run in record.runs if (run.selected or {}).get(search.metric) is not None]
    if search.maximizes:
        sign = 1
    else:
        sign = -1
    return max(
        candidates,
        key=lambda run: sign * ((run.selected or {})[search.metric] or 0.0),
        default=None,
    )


def picture_of(
    record: SweepRecord, shares: Mapping[str, float], remaining: float | None
) -> SweepView:
    """The sweep as page and metrics have it.

    `shares`: how much is done of each running run, by id.
    """
    cells = tuple(
        SweepCellView(
            run.id,
            in_words(run.settings),
            run.seed,
            run.state,
            run.node,
            1.0 if run.state in OVER else shares.get(run.id, 0.0),
            (run.final or {}).get("accuracy"),
        )
        for run in record.runs[:MOST_CELLS]
    )
    counts = {str(state): count for state, count in record.counts().items()}
    return SweepView(record.name, record.placement, counts, remaining, cells)


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, its columns below one another."""
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
