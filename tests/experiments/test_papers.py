"""The tables of the papers: what each cell has to be."""

import json
from typing import Any

import pytest

from experiments.tables.paper import PAPERS, paper_table, paper_tables

TEST_WINDOWS = 2947
OF_THE_THESIS = [name for name in paper_tables() if name.startswith("thesis-table-")]


def test_each_has_a_source_columns_and_nothing_unexplained() -> None:
    for name in paper_tables():
        table = json.loads((PAPERS / f"{name}.json").read_text(encoding="utf-8"))
        assert table["id"] == name
        assert table["source"]["work"], name
        assert table["source"]["place"], name
        columns = {
            "seconds_N" if column.startswith("seconds_") else column
            for row in table["rows"]
            for column in row
        }
        assert columns <= {*table["columns"], "model"}, name
        keys = {"schema", "id", "title", "source", "columns", "rows", "caveats"}
        assert table.keys() <= keys | {"device", "settings"}, name


def test_the_tables_5_to_21_are_there_with_their_numbers() -> None:
    assert [paper_table(name).place for name in OF_THE_THESIS] == [
        f"Table {at}" for at in range(5, 22)
    ]


@pytest.mark.parametrize("name", [*OF_THE_THESIS, "thesis-runs"])
def test_accuracies_are_whole_numbers_of_windows_and_seconds_the_time_as_it_is_printed(
    name: str,
) -> None:
    for row in paper_table(name).rows:
        windows: Any = row.get("correct_of_2947")
        if windows is not None:
            share: Any = row["accuracy"]
            assert isinstance(share, float)
            assert isinstance(windows, int)
            assert round(share * TEST_WINDOWS) == windows
            assert abs(share - windows / TEST_WINDOWS) < 1e-7
        if "time" in row:
            hours, minutes, seconds = (int(part) for part in str(row["time"]).split(":"))
            assert row["seconds"] == 3600 * hours + 60 * minutes + seconds


def test_every_row_of_tables_6_to_21_is_one_of_the_52_runs() -> None:
    runs = paper_table("thesis-runs").rows
    tables = [str(run["tables"]).split(", ") for run in runs]
    seen = set()
    assert len(runs) == 52
    for name in OF_THE_THESIS[1:]:
        number = paper_table(name).place.removeprefix("Table ")
        for row in paper_table(name).rows:
            (at,) = (at for at in range(52) if number in tables[at] and alike(runs[at], row))
            seen.add((number, at))
    assert seen == {(number, at) for at in range(52) for number in tables[at]}


SETTINGS = ("deep_layers", "residual_layers", "hidden", "learning_rate", "bidirectional")


def alike(run: Any, row: Any) -> bool:
    """Return whether a row shows a run: equal settings where it names them, equal figures."""
    machine = {"CPU": "Xeon", "Intel Xeon CPU": "Xeon"}
    device = row.get("device", row.get("hardware", run["device"]))
    named = [key for key in (*SETTINGS, "framework") if key in row]
    took = abs(row["seconds"] - run["seconds"]) <= 1 or row["time"] in str(run["other_times"])
    return bool(
        took
        and all(row[key] == run[key] for key in named)
        and machine.get(device, device) == run["device"]
        and abs(row.get("accuracy", run["accuracy"]) - run["accuracy"]) < 1e-7
    )


def test_a_collapsed_run_is_one_constant_class() -> None:
    for run in paper_table("thesis-runs").rows:
        assert run["collapsed"] == (float(run["accuracy"] or 0) < 0.2)
        if run["collapsed"] and run["correct_of_2947"] is not None:
            assert run["correct_of_2947"] in (532, 537)
