"""Which rows stand beside which runs, and the shipped sweeps beside their tables."""

from collections.abc import Mapping
from typing import Any

import pytest

from cluster.references.cells import reference_cells, reference_columns
from cluster.references.tables import Setting, Table, own_table, table_of
from cluster.sweeps.sweep_file import read
from deploy.common.project import ROOT

MODEL = "jobs.train.model"
SWEEPS = {path.stem: path for path in (ROOT / "sweeps").glob("*.yaml")}


def runs_of(name: str) -> list[Mapping[str, Any]]:
    """The settings of each run of a shipped sweep."""
    return [choice.settings for choice in read(SWEEPS[name]).choices]


def test_the_sweep_of_the_thesis_has_each_of_its_52_runs_once() -> None:
    table = own_table("thesis-runs")
    found = [cell for run in runs_of("thesis") for cell in reference_cells(table, run)]
    assert len(found) == len({(cell.name, *cell.figures.values()) for cell in found}) == 52
    assert len(runs_of("thesis")) == 32


def test_a_line_of_the_sweep_names_its_tables() -> None:
    text = SWEEPS["thesis"].read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("  - {")]
    for line, run in zip(lines, runs_of("thesis"), strict=True):
        cells = reference_cells(own_table("thesis-runs"), run)
        tables = sorted({int(number) for cell in cells for number in cell.tables.split(", ")})
        assert line.partition("# ")[2].split(maxsplit=1)[1] == ", ".join(map(str, tables))


@pytest.mark.parametrize("name", sorted(SWEEPS.keys() - {"example", "sets"}))
def test_each_run_of_a_shipped_sweep_has_its_name_and_references(name: str) -> None:
    found = read(SWEEPS[name])
    assert found.name == name
    table = table_of(str(found.references))
    assert table.rows
    for choice in found.choices:
        assert reference_cells(table, choice.settings) or name == "kimm"


def test_kimms_sweep_repeats_ten_times_and_its_table_holds_for_one_network() -> None:
    table = own_table("kimm-tpu-cpu")
    assert len(read(SWEEPS["kimm"]).seeds) == 10
    beside = [run for run in runs_of("kimm") if reference_cells(table, run)]
    assert {(run[f"{MODEL}.units"], run[f"{MODEL}.layers"]) for run in beside} == {(128, 3)}
    tpu, cpu = reference_cells(table, beside[0])
    assert (tpu.name, cpu.name) == ("TPU, 8 cores", "CPU")
    expected = {
        "accuracy": 0.92399,
        "precision_macro": 0.92488,
        "recall_macro": 0.92331,
        "f1_macro": 0.92331,
        "seconds": 5158.278,
    }
    assert cpu.figures == pytest.approx(expected)


def test_columns_have_a_head_for_each_device_and_leave_cells_empty() -> None:
    wide = {f"{MODEL}.hidden": 32}
    runs = [wide, {**wide, f"{MODEL}.bidirectional": True}, {f"{MODEL}.hidden": 77}]
    found = reference_columns(own_table("thesis-runs"), runs)
    assert found.heads[-2:] == ("Xeon, TensorFlow: accuracy", "Xeon, TensorFlow: seconds")
    assert found.figures[-2:] == ("accuracy", "seconds")
    assert found.rows[0][-2:] == (0.911774695, 3221)
    assert found.rows[1] == (None, None, None, None, 0.88768238, 5433)
    assert found.rows[2] == (None,) * 6
    assert reference_columns(None, [wide]).heads == ()


@pytest.mark.parametrize(
    ("cell", "value", "fits"),
    [
        (8, 8, True),
        (8, 8.0, True),
        (8, 9, False),
        (8, "8", False),
        (8, None, False),
        (True, 1, False),
        (True, True, True),
        (0.1 + 0.2, 0.3, True),
        ("a", "a", True),
        (None, 5, True),
        (8, [8], False),
        (8.0, 10**400, False),
        (8.0, float("nan"), False),
    ],
)
def test_values_fit_by_kind_and_size(cell: Any, value: Any, fits: bool) -> None:
    rows = ({"x": cell, "accuracy": 0.5},)
    table = Table("mine", "Mine", rows, settings={"x": Setting("jobs.train.x")})
    assert bool(reference_cells(table, {"jobs.train.x": value})) is fits


def test_a_column_may_have_the_name_of_a_key() -> None:
    key = "jobs.train.epochs"
    table = Table("mine", "Mine", ({key: 3, "accuracy": 0.5}, {key: 4, "accuracy": 0.6}))
    (cell,) = reference_cells(table, {key: 4})
    assert (cell.name, cell.figures) == ("published", {"accuracy": 0.6})
