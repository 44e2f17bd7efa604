"""The shipped sweeps beside the tables of papers that they train again."""

from collections.abc import Mapping
from typing import Any

import pytest

from cluster.sweeps.sweep_file import read
from deploy.common.project import ROOT
from experiments.tables.paper import PaperTable, Row, paper_table

MODEL = "jobs.train.model"
SWEEPS = {path.stem: path for path in (ROOT / "sweeps").glob("*.yaml")}


def runs_of(name: str) -> list[Mapping[str, Any]]:
    """The settings of each run of a shipped sweep."""
    return [choice.settings for choice in read(SWEEPS[name]).choices]


def rows_for(run: Mapping[str, Any]) -> list[Row]:
    """The runs of the thesis with these settings."""
    table = paper_table("thesis-runs")
    return [row for row in table.rows if table.fits(row, run)]


def test_the_sweep_of_the_thesis_has_each_of_its_52_runs_once() -> None:
    runs = paper_table("thesis-runs").rows
    places = [runs.index(row) for run in runs_of("thesis") for row in rows_for(run)]
    assert sorted(places) == list(range(52))
    assert len(runs_of("thesis")) == 32


def test_a_line_of_the_sweep_names_its_tables() -> None:
    text = SWEEPS["thesis"].read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("  - {")]
    for line, run in zip(lines, runs_of("thesis"), strict=True):
        tables = sorted({int(at) for row in rows_for(run) for at in row["tables"].split(", ")})
        assert line.partition("# ")[2].split(maxsplit=1)[1] == ", ".join(map(str, tables))


@pytest.mark.parametrize("name", sorted(SWEEPS.keys() - {"example", "sets"}))
def test_a_shipped_sweep_has_the_name_of_its_file(name: str) -> None:
    assert read(SWEEPS[name]).name == name


def test_the_sweep_of_the_pis_has_runs_of_the_thesis() -> None:
    assert all(rows_for(run) for run in runs_of("thesis-pis"))


def test_kimms_sweep_repeats_ten_times_and_has_the_network_of_its_table() -> None:
    assert len(read(SWEEPS["kimm"]).seeds) == 10
    assert (128, 3) in {(run[f"{MODEL}.units"], run[f"{MODEL}.layers"]) for run in runs_of("kimm")}


def test_null_fits_every_run_or_what_the_table_says() -> None:
    table = PaperTable(
        "",
        (),
        {"x": {"key": "a", "default": 3}, "y": {"key": "b", "default": False, "empty": True}},
    )
    assert table.fits({"x": 3, "y": False}, {})
    assert not table.fits({"x": 4, "y": False}, {})
    assert table.fits({"x": None, "y": None}, {"a": 9, "b": True})
    assert not table.fits({"x": None, "y": None}, {})
