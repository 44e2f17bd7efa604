"""Each path of a row leads to a value that there is, and one that does not is found."""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass, replace
from itertools import chain
from pathlib import Path
from string import Formatter
from types import NoneType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from cluster.pages.charts import CHARTS
from cluster.pages.facts import ended_root, live_root
from cluster.pages.files import RunRecord, StoredRun, SweepRecord
from cluster.pages.rows import ROWS, TEXTS
from cluster.pages.special import SPECIAL
from cluster.pages.sweep import root_of_sweep
from cluster.pages.words import writer_of
from core.status.parts import FIGURE_KEYS
from core.status.view import RunView, SweepView
from tests.cluster.pages.example import estimating, training
from tests.cluster.pages.folders import pi_result, train_result


def parts(hint: Any) -> list[Any]:
    """The types that a value may have, but for None."""
    if get_origin(hint) is Union or get_args(hint)[1:] == (NoneType,):
        return [part for one in get_args(hint) for part in parts(one)]
    return [] if hint is NoneType else [hint]


KEYS = (*FIGURE_KEYS, "train", "validation", "test")
"""Those of the mappings of a view that rows know by name."""


def type_at(hint: Any, path: str) -> Any:
    """The type behind a path. Raises KeyError for a name that no dataclass has."""
    for key in path.split("."):
        (hint,) = parts(hint)
        if is_dataclass(hint):
            hint = get_type_hints(hint)[key]
        else:
            hint = {key: get_args(hint)[1] for key in KEYS}[key]
    return hint


def entry_of(hint: Any) -> Any:
    """The type of the entries of a list."""
    (found,) = parts(hint)
    assert get_origin(found) is tuple, found
    return get_args(found)[0]


def deep(found: Mapping[str, Any]) -> Iterator[str]:
    """The paths of an object."""
    for key, value in found.items():
        yield key
        if isinstance(value, Mapping):
            yield from (f"{key}.{path}" for path in deep(value))


def roots() -> Iterator[Mapping[str, Any]]:
    """What rows show of a training, of pi and of sweeps."""
    for view in (replace(training(), sweep=SweepView("", "", {}, None, ())), estimating()):
        yield ended_root(StoredRun(Path("x"), view, train_result()))
        yield live_root(view)
    record = SweepRecord("", "", "failed", "node", (), (), (RunRecord("1", {}, 1, selected=BEST),))
    finished = replace(record.runs[0], state="finished", final=BEST, error="lost")
    yield root_of_sweep(replace(record, runs=(finished,)))


BEST = {"accuracy": 0.5}
RESULT = {**pi_result(1, 1, 1.0), **train_result(), "evaluated_run": "x", "busy": {"tasks": []}}
KNOWN = {f"result.{path}" for path in deep(RESULT)}
KNOWN |= {f"computed.{path}" for root in roots() for path in deep(root["computed"])}
KNOWN |= {f"computed.{path}" for path in ("runs", "classes", "seconds", "point.samples")}
KNOWN |= {"computed.point.estimate", "computed.point.standard_error", "result.dataset.held_out"}
KNOWN |= {f"result.dataset.held_out.{name}" for name in ("by", "leak")}
WORDS = {name for root in roots() for name in root["words"]} | {"groups", "kind", "word"}


def is_there(path: str) -> bool:
    """Whether a path of a row leads to something."""
    begin, _, rest = path.partition(".")
    if begin == "view":
        try:
            return type_at(RunView, rest) is not None
        except KeyError:
            return False
    return begin == "environment" or path in KNOWN


LISTS = ("live", "live_sweep", "sweep", "ended", "survived", "wire", "environment", "compared")
TABLES = ROWS["tables"].values()
ROW_PATHS = [
    row[verb]
    for row in chain(TABLES, *(ROWS[name] for name in LISTS))
    for verb in ("of", "total", "when", "tiles", "figures", "over")
    if "." in row.get(verb, "")
]


@pytest.mark.parametrize("path", sorted({*ROW_PATHS, *ROWS["settings"].values()}))
def test_each_path_leads_somewhere_and_its_neighbour_does_not(path: str) -> None:
    assert is_there(path)
    if not path.startswith("environment"):
        assert not is_there(f"{path}x")


def test_rows_say_how_values_are_written_and_use_words_that_there_are() -> None:
    for row in chain(
        *(ROWS[name] for name in LISTS), *(table.get("columns", {}).values() for table in TABLES)
    ):
        if "tiles" not in row:
            writer_of(row["as"])
    for row in chain(TABLES, *(ROWS[name] for name in LISTS)):
        for text in (row.get(key, "") for key in ("name", *TEXTS)):
            assert {name for _, name, _, _ in Formatter().parse(text) if name} <= WORDS, text


@pytest.mark.parametrize("name", sorted(CHARTS.keys() - SPECIAL.keys()))
def test_each_line_is_a_field_of_the_entries_of_its_list(name: str) -> None:
    row = CHARTS[name]
    for line in row.get("series", {name: row}).values() if "over" in row else ():
        found = {**row, **line}
        entry = entry_of(type_at(RunView, found["over"]))
        fields = [found[verb] for verb in ("x", "y", "charts_each") if verb in found]
        assert fields
        for field in fields:
            assert type_at(entry, field)
            with pytest.raises(KeyError):
                type_at(entry, f"{field}x")


def test_columns_of_a_list_of_the_view_are_fields_of_its_entries() -> None:
    tables = [table for table in TABLES if table.get("over", "").startswith("view.")]
    assert len(tables) == 2
    for table in tables:
        entry = entry_of(type_at(RunView, table["over"].removeprefix("view.")))
        for column in table["columns"].values():
            assert type_at(entry, column.get("of") or column["each"])
