"""What rows of `rows.yaml` and `charts.yaml` show: tiles, tables and lines, by where values stand.

A path is the dotted names of fields and keys, from what a page is about: the `view`, `result` and
`environment` of a run, and what code has `computed` of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from itertools import count
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any

import yaml

from cluster.pages.charts import CHARTS, Chart, Series, chart, chart_of_figure, smoothed, thinned
from cluster.pages.special import SPECIAL, unit_of
from cluster.pages.words import NOTHING, figure_word, hint, is_number, terms, writer_of
from core.status.parts import CLASSIFICATION, MULTILABEL
from core.status.view import RunView

ROWS: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("rows.yaml").read_text(encoding="utf-8")
)
NAMING = (CLASSIFICATION, MULTILABEL)
"""Tasks whose answers are right or wrong."""
MOST_FIGURES = 6
"""Charts of figures that only a task or an app has."""

TEXTS = ("title", "hint", "look", "box", "empty")
"""Texts of a table."""

Row = Mapping[str, Any]
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Tile:
    """One figure with its name and a word of explanation."""

    name: str
    value: str
    hint: str


@dataclass(frozen=True)
class TableSection:
    """A section with a table; the first cell of a row is its name."""

    id: str
    title: str
    hint: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    look: str = ""
    """Classes of the table, `box` those of what it scrolls in."""
    box: str = ""
    empty: str = ""
    """Said in its place where it has no rows."""
    shaded: int = 0
    """Rows at its begin that are shaded."""


def value_at(root: Any, path: str | Sequence[str]) -> Any:
    """The value behind a path; None where a part of it is missing, as in interrupted runs."""
    for key in path.split(".") if isinstance(path, str) else path:
        if isinstance(root, Mapping):
            root = root.get(key)
        elif is_dataclass(root):
            root = getattr(root, key, None)
        else:
            return None
    return root


def number_at(root: Any, path: str | Sequence[str]) -> float | None:
    """The value behind a path if it is a number, else None."""
    value = value_at(root, path)
    if is_number(value):
        return float(value)
    return None


def text_at(root: Any, row: Row) -> str:
    """The value that a row is about, as it is written; with `total` it is one of so many."""
    write = writer_of(row["as"])
    value = value_at(root, row["of"])
    if value in (None, "") and "else" in row:
        value = row["else"]
    if "total" in row:
        return f"{write(value)} of {write(value_at(root, row['total']))}"
    return write(value)


def tiles_of(name: str, root: Mapping[str, Any]) -> list[Tile]:
    """The tiles of this name whose `when` is there; `tiles` are some that code has made."""
    tiles: list[Tile] = []
    for row in ROWS[name]:
        if "tiles" in row:
            tiles += value_at(root, row["tiles"]) or ()
        elif "when" not in row or value_at(root, row["when"]):
            title = row["name"].format(**root["words"])
            hint = row["hint"].format(**root["words"])
            tiles.append(Tile(title, text_at(root, row), hint))
    return tiles


def table_of(name: str, root: Mapping[str, Any]) -> TableSection | None:
    """The table of this name; None where it has neither rows nor words for that."""
    row = ROWS["tables"][name]
    if "when" in row and not value_at(root, row["when"]):
        return None
    if "tiles" in row:
        heads = row["heads"]
        rows = [[tile.name, tile.value, hint(tile.hint)] for tile in tiles_of(row["tiles"], root)]
    else:
        heads, rows = _columns(row, root)
    if not rows and "empty" not in row:
        return None
    texts = {key: row.get(key, "").format(**root["words"]) for key in TEXTS}
    return TableSection(name, heads=heads, rows=rows, **texts)


def _columns(row: Row, root: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: one for each object of a list; `filled`: no column that nothing is in."""
    records = value_at(root, row["over"])
    if not isinstance(records, list | tuple):
        return [], []
    entries = [entry for entry in records if isinstance(entry, Mapping) or is_dataclass(entry)]
    columns = dict[str, Row]()
    for head, column in row["columns"].items():
        if "each" in column:
            for key in keys_of(entries, column["each"])[: column["most"]]:
                word = figure_word(key)[0]
                columns[head.format(word=word)] = {**column, "of": [column["each"], key]}
        else:
            columns[head.format(**root["words"])] = column
    written = {
        head: [text_at(entry, column) for entry in entries] for head, column in columns.items()
    }
    if row.get("filled"):
        written = {head: cells for head, cells in written.items() if {*cells} - {NOTHING}}
    return [*written], [[*cells] for cells in zip(*written.values(), strict=True)]


def keys_of(entries: Iterable[Any], field: str) -> list[str]:
    """The keys that a field of these entries has, in the order in which they came."""
    return [*dict.fromkeys(key for entry in entries for key in getattr(entry, field))]


def charts_of(view: RunView) -> list[Chart]:
    """Return the charts that fit the job, in order; none of a sweep, whose runs have their own."""
    if view.job == "sweep":
        return []
    return [chart for name in ROWS["charts"] for chart in charts_named(name, view)]


def charts_named(name: str, view: RunView) -> list[Chart]:
    """The chart of this name, or one of each figure; none where it does not fit the run."""
    row = CHARTS[name]
    job = row.get("when", view.job)
    if view.job != job and getattr(view, job) is None:
        return []
    unit = unit_of(view)
    if name in SPECIAL:
        return [SPECIAL[name](view)]
    if "charts_each" in row:
        keys = keys_of(value_at(view, row["over"]) or (), row["charts_each"])[:MOST_FIGURES]
        return [
            chart_of_figure(name, place, key, *_lines(row, view, key), unit=unit)
            for place, key in enumerate(keys)
        ]
    drawn = chart(name, *_lines(row, view), unit=unit)
    if drawn.is_empty and row.get("naming") and view.task_type not in NAMING:
        return []
    return [drawn]


def _lines(row: Row, view: RunView, key: str | None = None) -> Iterator[Series]:
    for color, (name, line) in enumerate(row["series"].items()):
        row_of_line = {**row, **line}
        points = points_of(view, row_of_line, key)
        drawn = smoothed(points) if "smooth" in line else thinned(points)
        yield Series(
            name.format(**terms(unit_of(view))),
            drawn,
            row_of_line.get("color", color),
            row_of_line.get("look", "line"),
        )


def points_of(view: RunView, row: Row, key: str | None = None) -> Points:
    """Return (x, y) of each entry of a list that has the value; `key`: of one chart of several."""
    entries = value_at(view, row["over"]) or ()
    if key is None:
        values = map(attrgetter(row["y"]), entries)
    else:
        values = map(methodcaller("get", key), map(attrgetter(row["charts_each"]), entries))
    places = map(attrgetter(row["x"]), entries) if "x" in row else count(1)
    return [(x, y) for x, y in zip(places, values, strict=False) if y is not None]
