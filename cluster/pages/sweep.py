"""The page of a sweep in one file: its runs by settings, mean and spread over seeds, and what papers have for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.atomic_write import atomic_write
from cluster.pages.charts import Chart
from cluster.pages.drawing import environment
from cluster.pages.panels import Tile
from cluster.pages.run_files import REPORT
from cluster.pages.sweep_charts import charts_of_sweep, settings_text, short_key, value_text
from cluster.pages.sweep_files import HELD_OUT, Sweep, SweepGroup, SweepRun, read_sweep
from cluster.pages.words import NOTHING, count, duration, figure, figure_word, measure, percent
from cluster.references.cells import ReferenceColumns, reference_columns
from cluster.references.tables import Table
from cluster.status.parts import FIGURE_KEYS

MOST_ROWS = 500
MOST_FAILED = 50
MOST_OTHERS = 4

_SHARES = ("accuracy", "f1_macro", "f1_weighted", "precision_macro", "recall_macro")
_NAMES = {
    "accuracy": "accuracy", "f1_macro": "macro F1", "f1_weighted": "weighted F1", "precision_macro": "precision",
    "recall_macro": "recall", "loss": "loss", HELD_OUT: "held-out accuracy", "seconds": "time",
}  # fmt: skip
"""Figures with a column, in its order."""


@dataclass(frozen=True)
class Cell:
    """A figure of a row, or what a paper has for it."""

    text: str
    spread: str = ""
    theirs: bool = False


@dataclass(frozen=True)
class SweepRow:
    """The runs of one choice of settings."""

    settings: tuple[str, ...]
    ended: str
    """How many of its runs have ended, and how many not well."""
    state: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class SweepTable:
    """All that the template needs of the rows. A figure of ours is followed by what papers have for it."""

    keys: tuple[str, ...]
    heads: tuple[Cell, ...]
    rows: tuple[SweepRow, ...]
    left_out: int

    @property
    def has_references(self) -> bool:
        """Whether a column is a paper's."""
        return any(head.theirs for head in self.heads)


def sweep_page(folder: Path) -> str:
    """The whole file, from `sweep.json` of the folder and the table of references it names.

    Raises UsageError for a folder that holds no sweep. A table that cannot be used is a line on the page.
    """
    sweep = read_sweep(folder)
    table, problem = sweep.table(folder)
    return (
        environment()
        .get_template("sweep.html")
        .render(
            title=f"Sweep {sweep.name}",
            sweep=sweep,
            tiles=tiles_of_sweep(sweep),
            table=table_of_sweep(sweep, table),
            charts=_drawn(sweep, table),
            failed=[(run, settings_text(run.settings)) for run in _failed(sweep)[:MOST_FAILED]],
            left_out=max(0, len(_failed(sweep)) - MOST_FAILED),
            references=table,
            references_problem=problem,
            base={key: value_text(value) for key, value in sweep.base.items()},
        )
    )


def leave_sweep(folder: Path, out: Path | None = None) -> Path:
    """Write the page into the sweep's folder, or to `out`; where it lies. Raises ClusterError."""
    path = out or folder / REPORT
    atomic_write(path, sweep_page(folder).encode())
    return path


def _drawn(sweep: Sweep, table: Table | None) -> list[Chart]:
    return [chart for chart in charts_of_sweep(sweep, table) if not chart.is_empty]


def _failed(sweep: Sweep) -> list[SweepRun]:
    return [run for run in sweep.runs if run.state == "failed" or run.error]


def tiles_of_sweep(sweep: Sweep) -> list[Tile]:
    """The figures to look at first."""
    states = [run.state for run in sweep.runs]
    over = sum(state in ("finished", "failed", "pruned") for state in states)
    tiles = [
        Tile("Runs", f"{count(over)} of {count(len(states))}", "have ended"),
        Tile("Seeds", count(len(sweep.seeds)), "of each choice of settings"),
        Tile("Time", duration(sum(run.seconds or 0.0 for run in sweep.runs)), "of all runs, one after the other"),
    ]
    means = [(mean, group) for group in sweep.groups if (mean := group.mean("accuracy")) is not None]
    if means:
        low, high = min(mean for mean, _ in means), max(mean for mean, _ in means)
        words = "lowest and highest mean of the settings; the test set chooses none"
        tiles.append(Tile("Test accuracy", f"{percent(low)} to {percent(high)}", words))
    held_out = [(mean, group) for group in sweep.groups if (mean := group.mean(HELD_OUT)) is not None]
    if held_out:
        mean, best = max(held_out, key=lambda found: found[0])
        test = percent(best.mean("accuracy"), 2)
        words = f"highest mean on what was held out; test {test}: {settings_text(best.settings)}"
        tiles.append(Tile("Chosen", percent(mean, 2), words))
    nodes = {run.node for run in sweep.runs if run.node}
    words = "trained one run each at a time" if sweep.placement == "node" else "trained the runs"
    return [*tiles, *([Tile("Nodes", count(len(nodes)), words)] if nodes else [])]


def figures_of_sweep(sweep: Sweep, table: Table | None) -> list[str]:
    """Figures with a column: the usual ones that a run or the table has, then the first that only the task has."""
    had = dict.fromkeys(
        name for run in sweep.runs for name, value in (run.final or {}).items() if value is not None
    )  # fmt: skip
    theirs = table.said_figures if table is not None else {}
    held_out = any(group.mean(HELD_OUT) is not None for group in sweep.groups)
    usual = [name for name in _NAMES if name in had or name == "seconds" or (name == HELD_OUT and held_out)]
    usual = [name for name in usual if name != "f1_weighted" or name in theirs]
    return [*usual, *[name for name in had if name not in FIGURE_KEYS][:MOST_OTHERS]]


def table_of_sweep(sweep: Sweep, table: Table | None) -> SweepTable:
    """The table of the page: a row for each choice of settings."""
    keys = [axis.key for axis in sweep.axes] or [*dict.fromkeys(key for run in sweep.runs for key in run.settings)]
    figures, shown = figures_of_sweep(sweep, table), sweep.groups[:MOST_ROWS]
    theirs = reference_columns(table, [group.settings for group in shown], figures)
    heads = []
    for name in figures:
        word = _NAMES.get(name) or figure_word(name).word
        heads.append(Cell(word))
        heads += [Cell(f"{theirs.heads[at].rpartition(': ')[0]}: {word}", theirs=True) for at in _columns(theirs, name)]
    rows = tuple(_row(group, keys, figures, theirs, at) for at, group in enumerate(shown))
    return SweepTable(tuple(map(short_key, keys)), tuple(heads), rows, len(sweep.groups) - len(shown))


def _columns(theirs: ReferenceColumns, name: str) -> list[int]:
    """The places of the columns that have this figure."""
    return [at for at, figure in enumerate(theirs.figures) if figure == name]


def _row(
    group: SweepGroup, keys: Sequence[str], figures: Sequence[str], theirs: ReferenceColumns, at: int
) -> SweepRow:  # fmt: skip
    cells = []
    for name in figures:
        spread = group.spread(name)
        beside = "" if spread is None else written_figure(name, spread)
        cells.append(Cell(written_figure(name, group.mean(name)), beside))
        found = (theirs.rows[at][column] for column in _columns(theirs, name))
        cells += [Cell(written_figure(name, value), theirs=True) for value in found]
    ended, all_runs = len(group.ended), len(group.runs)
    other = {state: sum(run.state == state for run in group.runs) for state in ("failed", "pruned", "running")}
    words = [f"{ended} of {all_runs}", *(f"{number} {state}" for state, number in other.items() if number)]
    return SweepRow(
        tuple(value_text(group.settings[key]) if key in group.settings else NOTHING for key in keys),
        ", ".join(words),
        _state(group, other),
        tuple(cells),
    )


def _state(group: SweepGroup, other: Mapping[str, int]) -> str:
    if other["failed"]:
        return "failed"
    if other["running"]:
        return "running"
    if all(run.state in ("finished", "pruned") for run in group.runs):
        return "pruned" if not group.ended else "finished"
    return "running" if group.ended else "waiting"


def written_figure(name: str, value: float | None) -> str:
    """A figure as the page writes it."""
    if name == "seconds":
        return duration(value)
    if name in ("accuracy", HELD_OUT):
        return percent(value, 2)
    return figure(value) if name in _SHARES else measure(value)
