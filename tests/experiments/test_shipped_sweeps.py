"""The shipped sweeps beside the tables of papers that they train again."""

from collections.abc import Mapping
from typing import Any

import pytest

from cluster.sweeps.sweep_file import read_sweep_file
from deploy.common.project import ROOT
from experiments.tables.measured import PaperTable, Row, paper_table

SWEEPS = {path.stem: path for path in (ROOT / "sweeps").glob("*.yaml")}


def runs_of(name: str) -> list[Mapping[str, Any]]:
    """The settings of each run of a shipped sweep."""
    return [choice.settings for choice in read_sweep_file(SWEEPS[name]).choices]


def rows_for(run: Mapping[str, Any]) -> list[Row]:
    """The runs of the thesis with these settings."""
    table = paper_table("thesis-runs")
    return [row for row in table.rows if table.fits(row, run)]


def test_the_sweep_of_the_thesis_has_each_of_its_52_runs_once() -> None:
    runs = paper_table("thesis-runs").rows
    places = [runs.index(row) for run in runs_of("thesis") for row in rows_for(run)]
    assert sorted(places) == list(range(52))
    assert len(runs_of("thesis")) == 32


@pytest.mark.parametrize("name", sorted(SWEEPS.keys() - {"example", "sets"}))
def test_a_shipped_sweep_has_the_name_of_its_file(name: str) -> None:
    assert read_sweep_file(SWEEPS[name]).name == name


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
