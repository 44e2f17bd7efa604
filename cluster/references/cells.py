"""Which rows of a table stand beside a run, and what they say: for pages, terminals and CSV."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.references.tables import NAMES, Row, Setting, Table

LARGEST = 10**15
ALONE = "published"
"""What a row without a device is called."""


@dataclass(frozen=True)
class ReferenceCell:
    """What one row says of the figures of a run, in the run's units: shares, and seconds."""

    name: str
    """What it was measured on, such as `Xeon, TensorFlow`."""
    figures: Mapping[str, float]
    tables: str = ""
    """The numbers of the tables it stands in, such as `6, 10`; empty where the row names none."""


@dataclass(frozen=True)
class ReferenceColumns:
    """Columns of numbers beside the runs: `rows[run][column]`, None where nothing was published."""

    heads: tuple[str, ...]
    figures: tuple[str, ...]
    """The figure that each column has, so that it is written as ours is."""
    rows: tuple[tuple[float | None, ...], ...]


def reference_cells(table: Table | None, settings: Mapping[str, Any]) -> tuple[ReferenceCell, ...]:
    """Return the rows that hold for a run with these settings, in the order of the table.

    Settings are by key as `--set` takes it.
    """
    if table is None or not _holds(table, settings):
        return ()
    said = table.said_settings
    found = []
    for row in table.rows:
        if all(
            _fits(row.get(column), setting, settings)
            for column, setting in said.items()
            if column in row
        ):
            figures = _figures(table, row)
            if figures:
                found.append(ReferenceCell(name_of(row), figures, str(row.get("tables") or "")))
    return tuple(found)


def reference_columns(
    table: Table | None,
    runs: Sequence[Mapping[str, Any]],
    figures: Sequence[str] = ("accuracy", "seconds"),
) -> ReferenceColumns:
    """Return a column for each device and figure that any of several runs has."""
    cells = [reference_cells(table, settings) for settings in runs]
    known = [
        (name, figure)
        for name in dict.fromkeys(cell.name for found in cells for cell in found)
        for figure in figures
        if any(figure in cell.figures for found in cells for cell in found if cell.name == name)
    ]
    rows = tuple(
        tuple(
            next(
                (
                    cell.figures[figure]
                    for cell in found
                    if cell.name == name and figure in cell.figures
                ),
                None,
            )
            for name, figure in known
        )
        for found in cells
    )
    return ReferenceColumns(
        tuple(f"{name}: {figure}" for name, figure in known), tuple(f for _, f in known), rows
    )


def name_of(row: Row) -> str:
    """What a row was measured on, in words."""
    return ", ".join(str(row[name]) for name in NAMES if row.get(name)) or ALONE


def _holds(table: Table, settings: Mapping[str, Any]) -> bool:
    return all(
        _equal(settings[key], value) for key, value in table.where.items() if key in settings
    )


def _fits(cell: Any, setting: Setting, settings: Mapping[str, Any]) -> bool:
    if cell is None:
        wanted = setting.empty
    else:
        wanted = cell
    return wanted is None or _equal(settings.get(setting.key, setting.default), wanted)


def _equal(one: Any, other: Any) -> bool:
    """Equal values of one kind: true is not 1, and 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        numbers = isinstance(one, int | float) and isinstance(other, int | float)
        return (
            numbers
            and max(abs(one), abs(other)) < LARGEST
            and math.isclose(one, other, rel_tol=1e-9)
        )
    return bool(one == other)


def _figures(table: Table, row: Row) -> dict[str, float]:
    found = {}
    for name, figure in table.said_figures.items():
        value = row.get(figure.column)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = value / figure.divide_by
    return found
