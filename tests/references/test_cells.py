"""Which rows stand beside which runs, and the shipped sweeps beside their tables."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.inventory import load
from cluster.references.cells import reference_cells, reference_columns
from cluster.references.tables import Setting, Table, own_table, table_of
from deploy.common.project import ROOT

MODEL = "jobs.train.model"
SWEEPS = sorted((ROOT / "sweeps").glob("*.yaml"))


def sweep(name: str) -> Any:
    return yaml.safe_load((ROOT / "sweeps" / f"{name}.yaml").read_text(encoding="utf-8"))


def runs_of(found: Any) -> list[dict[str, Any]]:
    if "runs" in found:
        return list(found["runs"])
    runs: list[dict[str, Any]] = [{}]
    for key, values in found["grid"].items():
        runs = [{**run, key: value} for run in runs for value in values]
    return runs


def test_the_sweep_of_the_thesis_has_each_of_its_52_runs_once() -> None:
    found = [cell for run in runs_of(sweep("thesis")) for cell in reference_cells(own_table("thesis-runs"), run)]
    assert len(found) == 52
    assert len({(cell.name, *cell.figures.values()) for cell in found}) == 52
    assert len(runs_of(sweep("thesis"))) == 32


def test_a_line_of_the_sweep_names_its_tables() -> None:
    text = (ROOT / "sweeps" / "thesis.yaml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("  - {")]
    for line, run in zip(lines, runs_of(sweep("thesis")), strict=True):
        cells = reference_cells(own_table("thesis-runs"), run)
        tables = sorted({int(number) for cell in cells for number in cell.tables.split(", ")})
        assert line.partition("# ")[2].split(maxsplit=1)[1] == ", ".join(map(str, tables))


@pytest.mark.parametrize("path", [path for path in SWEEPS if path.stem != "example"], ids=lambda path: path.stem)
def test_the_shipped_sweeps_are_trainings_that_the_schema_knows(path: Path) -> None:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert found["name"] == path.stem
    assert table_of(found["references"]).rows
    for run in runs_of(found):
        overrides = [f"{key}={yaml.safe_dump(value).strip()}" for key, value in {**found["base"], **run}.items()]
        load(ROOT / "inventories" / "local.yaml", overrides, check_interfaces=False)
        assert reference_cells(table_of(found["references"]), run) or path.stem == "kimm"


def test_kimms_sweep_repeats_ten_times_and_its_table_holds_for_one_network() -> None:
    found = sweep("kimm")
    assert len(found["seeds"]) == 10
    beside = [run for run in runs_of(found) if reference_cells(own_table("kimm-tpu-cpu"), run)]
    assert {(run[f"{MODEL}.units"], run[f"{MODEL}.layers"]) for run in beside} == {(128, 3)}
    (tpu, cpu) = reference_cells(own_table("kimm-tpu-cpu"), beside[0])
    assert (tpu.name, cpu.name) == ("TPU, 8 cores", "CPU")
    assert cpu.figures == pytest.approx(
        {"accuracy": 0.92399, "precision_macro": 0.92488, "recall_macro": 0.92331, "f1_macro": 0.92331,
         "seconds": 5158.278}
    )  # fmt: skip


def test_columns_have_a_head_for_each_device_and_leave_cells_empty() -> None:
    wide, two = {f"{MODEL}.hidden": 32}, {f"{MODEL}.hidden": 32, f"{MODEL}.bidirectional": True}
    found = reference_columns(own_table("thesis-runs"), [wide, two, {f"{MODEL}.hidden": 77}])
    assert found.heads[-2:] == ("Xeon, TensorFlow: accuracy", "Xeon, TensorFlow: seconds")
    assert found.figures[-2:] == ("accuracy", "seconds")
    assert found.rows[0][-2:] == (0.911774695, 3221)
    assert found.rows[1] == (None, None, None, None, 0.88768238, 5433)
    assert found.rows[2] == (None,) * 6
    assert reference_columns(None, [wide]).heads == ()


@pytest.mark.parametrize(
    ("cell", "value", "fits"),
    [
        (8, 8, True), (8, 8.0, True), (8, 9, False), (8, "8", False), (8, None, False), (True, 1, False),
        (True, True, True), (0.1 + 0.2, 0.3, True), ("a", "a", True), (None, 5, True), (8, [8], False),
        (8.0, 10**400, False), (8.0, float("nan"), False),
    ],
)  # fmt: skip
def test_values_fit_by_kind_and_size(cell: Any, value: Any, fits: bool) -> None:
    rows = ({"x": cell, "accuracy": 0.5},)
    table = Table("mine", "Mine", rows, settings={"x": Setting("jobs.train.x")})
    assert bool(reference_cells(table, {"jobs.train.x": value})) is fits


def test_a_column_may_have_the_name_of_a_key() -> None:
    table = Table(
        "mine", "Mine", ({"jobs.train.epochs": 3, "accuracy": 0.5}, {"jobs.train.epochs": 4, "accuracy": 0.6})
    )
    (cell,) = reference_cells(table, {"jobs.train.epochs": 4})
    assert (cell.name, cell.figures) == ("published", {"accuracy": 0.6})
