"""A table of references: JSON from `published/` or a user, or a user's plain CSV.

A row may say for which settings it holds: a column stands for a key as `--set` takes it. What no
column says holds for all settings.
"""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from core.atomic_write import atomic_write
from core.errors import UsageError, reason_of
from core.json_file import read_object

PUBLISHED = Path(__file__).with_name("published")
MAXIMUM_BYTES = 1 << 20
SCHEMA = 1
COPY = "references.json"
CSV = ".csv"

Name = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]+$")]
Words = Annotated[str, Field(max_length=1000)]
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e15, le=1e15, strict=True)]
Whole = Annotated[int, Field(ge=-(10**15), le=10**15, strict=True)]
Scalar = bool | Whole | Number | Words | None
Row = Annotated[Mapping[Name, Scalar], Field(max_length=40)]


@dataclass(frozen=True)
class Citation:
    """Where a table is from: who, when and what, and the place in it, such as `Table 6`."""

    work: Words
    place: Words = ""


@dataclass(frozen=True)
class Setting:
    """What a column says of a run: the value of `key`."""

    key: Name
    default: Scalar = None
    """The value of a run that does not say."""
    empty: Scalar = None
    """What a row means that has null there; null fits every run."""


@dataclass(frozen=True)
class FigureColumn:
    """Which column holds a figure of a run, and what it is to be divided by, 100 for per cent."""

    column: Name
    divide_by: Annotated[float, Field(gt=0, le=1e6)] = 1.0


USUAL_SETTINGS: Mapping[str, Setting] = {
    "deep_layers": Setting("jobs.train.model.n_stacked_layers", 3),
    "residual_layers": Setting("jobs.train.model.n_layers_in_highway", 0),
    "bidirectional": Setting("jobs.train.model.bidirectional", False),
    "hidden": Setting("jobs.train.model.hidden", 32),
    "learning_rate": Setting("jobs.train.optimizer.learning_rate", 0.001),
}
"""Columns of the 2019 thesis, where a table does not say itself what they stand for."""
USUAL_FIGURES: Mapping[str, FigureColumn] = {
    "accuracy": FigureColumn("accuracy"),
    "f1_weighted": FigureColumn("f1"),
    "seconds": FigureColumn("seconds"),
}
NAMES = ("device", "hardware", "framework")
"""Columns that say what a row was measured on."""


def _source(value: Any) -> Any:
    """A source may be a mere text."""
    if isinstance(value, str):
        return {"work": value}
    return value


@dataclass(frozen=True)
class Table:
    """A table as it was published.

    `settings` and `figures` are by column and by figure of a run.
    """

    id: Name
    title: Words
    rows: Annotated[tuple[Row, ...], Field(min_length=1, max_length=1000)]
    source: Annotated[Citation, BeforeValidator(_source)] = field(
        default_factory=lambda: Citation("")
    )
    columns: Annotated[Mapping[Name, Words], Field(max_length=40)] = field(default_factory=dict)
    settings: Annotated[Mapping[Name, Setting], Field(max_length=40)] = field(default_factory=dict)
    where: Annotated[Mapping[Name, Scalar], Field(max_length=40)] = field(default_factory=dict)
    """Settings for which the whole table holds."""
    figures: Annotated[Mapping[Name, FigureColumn], Field(max_length=40)] = field(
        default_factory=dict
    )
    caveats: Annotated[tuple[Words, ...], Field(max_length=40)] = ()

    @property
    def said_settings(self) -> Mapping[str, Setting]:
        """Return what each column stands for: as the table says, a key by its name, or as usual."""
        named = dict.fromkeys(name for row in self.rows for name in row)
        keys = {name: Setting(name) for name in named if name.startswith("jobs.train.")}
        usual = {name: setting for name, setting in USUAL_SETTINGS.items() if name in named}
        return {**(self.settings or usual), **keys}

    @property
    def said_figures(self) -> Mapping[str, FigureColumn]:
        """The figures of a run that the table has."""
        named = dict.fromkeys(name for row in self.rows for name in row)
        return {
            name: found
            for name, found in (self.figures or USUAL_FIGURES).items()
            if found.column in named
        }

    def cite(self) -> str:
        """The source in one line."""
        return ", ".join(part for part in (self.source.work, self.source.place) if part)


_TABLE = TypeAdapter(Table)
_KEYS = frozenset(Table.__dataclass_fields__)


def read_table(path: Path) -> Table:
    """Read a table from a file of at most 1 MiB: JSON, or CSV with a line of headings.

    Raises UsageError, which names the file, for anything else.
    """
    try:
        if not path.is_file():
            raise ValueError("no such file")
        if path.suffix == CSV:
            found = {"id": path.stem, "title": path.stem, "rows": _rows_of_csv(path)}
        else:
            found = read_object(path, MAXIMUM_BYTES, SCHEMA)
        return _TABLE.validate_python({key: value for key, value in found.items() if key in _KEYS})
    except (OSError, ValueError, ValidationError) as problem:
        expected = "expected a table of references (docs/tables.md)"
        raise UsageError(f"{str(path)!r}: {expected}, got {reason_of(problem)}") from None


def _rows_of_csv(path: Path) -> list[dict[str, Scalar]]:
    """Read the rows by heading; raises ValueError for a table without headings or with gaps."""
    with path.open("rb") as stream:
        content = stream.read(MAXIMUM_BYTES + 1)
    if len(content) > MAXIMUM_BYTES:
        raise ValueError(f"more than {MAXIMUM_BYTES} bytes")
    lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
    try:
        found = [line for line in lines if line]
    except csv.Error as problem:
        raise ValueError(f"line {lines.line_num}: {problem}") from None
    if not found:
        raise ValueError("an empty file")
    headings, *rows = found
    if len({*headings}) < len(headings):
        raise ValueError("two columns of one name")
    for row in rows:
        if len(row) != len(headings):
            raise ValueError(f"a row of {len(row)} cells below {len(headings)} headings: {row}")
    return [dict(zip(headings, map(_scalar, row), strict=True)) for row in rows]


def _scalar(cell: str) -> Scalar:
    """Return a cell as JSON would have it: an empty one is null, a number is a number."""
    if not cell:
        return None
    try:
        value = json.loads(cell)
    except ValueError:
        return cell
    return value if isinstance(value, bool | int | float) else cell


def own_names() -> list[str]:
    """The names of the project's own tables."""
    return sorted(path.stem for path in PUBLISHED.glob("*.json"))


@cache
def own_table(name: str) -> Table:
    """One of the project's own tables by its name, e.g. `thesis-runs`.

    Raises UsageError for an unknown one.
    """
    if name not in own_names():
        raise UsageError(
            f"no table of references {name!r:.120}; the project's own are {', '.join(own_names())}"
        )
    return read_table(PUBLISHED / f"{name}.json")


def kept(reference: str, beside: Path, folder: Path) -> str:
    """Keep the reference of a sweep's file in its folder: one of ours by name, a copy of others.

    `beside` is the folder of the sweep's file. The copy is `references.json`, which is returned, so
    that the folder stands alone. Raises UsageError for a table that does not exist or cannot be
    used, before anything runs.
    """
    content = content_of(reference, beside)
    if content is None:
        return reference
    atomic_write(folder / COPY, content)
    return COPY


def content_of(reference: str, beside: Path) -> bytes | None:
    """Return a reference's table as JSON, relative to `beside`; None for one of the project's own.

    Raises UsageError for a table that does not exist or cannot be used.
    """
    table = table_of(reference, beside)
    if reference in own_names():
        return None
    if reference.endswith(CSV):
        made = {"schema": SCHEMA, "id": table.id, "title": table.title, "rows": table.rows}
        return json.dumps(made, default=dict).encode()
    return (beside / reference).read_bytes()[:MAXIMUM_BYTES]


def table_of(reference: str, beside: Path | None = None) -> Table:
    """Return the table that a sweep names: one of ours, or a file relative to `beside`.

    Raises UsageError for a table that does not exist or cannot be used.
    """
    if reference in own_names():
        return own_table(reference)
    if "/" not in reference and not reference.endswith((".json", CSV)):
        return own_table(reference)
    return read_table((beside or Path()) / reference)
