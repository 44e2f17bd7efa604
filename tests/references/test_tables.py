"""The tables of the papers: what each cell has to be, and files that are none."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import UsageError
from cluster.references.tables import PUBLISHED, kept, own_names, own_table, read_table, table_of

TEST_WINDOWS = 2947
OF_THE_THESIS = [name for name in own_names() if name.startswith("thesis-table-")]


def test_each_of_our_own_has_a_source_columns_and_nothing_unexplained() -> None:
    for name in own_names():
        table = own_table(name)
        assert table.id == name
        assert table.source.work, name
        assert table.source.place, name
        columns = {"seconds_N" if column.startswith("seconds_") else column for row in table.rows for column in row}
        assert columns <= {*table.columns, "model"}, name
        text = (PUBLISHED / f"{name}.json").read_text()
        assert set(json.loads(text)) <= {"schema", "device", *type(table).__dataclass_fields__}, name


def test_the_tables_5_to_21_are_there_with_their_numbers() -> None:
    assert [own_table(name).source.place for name in OF_THE_THESIS] == [f"Table {at}" for at in range(5, 22)]


@pytest.mark.parametrize("name", [*OF_THE_THESIS, "thesis-runs"])
def test_accuracies_are_whole_numbers_of_windows_where_they_say_so(name: str) -> None:
    for row in own_table(name).rows:
        if row.get("correct_of_2947") is not None:
            share, windows = row["accuracy"], row["correct_of_2947"]
            assert isinstance(share, float)
            assert isinstance(windows, int)
            assert round(share * TEST_WINDOWS) == windows
            assert abs(share - windows / TEST_WINDOWS) < 1e-7


@pytest.mark.parametrize("name", [*OF_THE_THESIS, "thesis-runs"])
def test_seconds_are_the_time_as_it_is_printed(name: str) -> None:
    for row in own_table(name).rows:
        if "time" in row:
            hours, minutes, seconds = (int(part) for part in str(row["time"]).split(":"))
            assert row["seconds"] == 3600 * hours + 60 * minutes + seconds


def test_every_row_of_tables_6_to_21_is_one_of_the_52_runs() -> None:
    runs, seen = own_table("thesis-runs").rows, set()
    assert len(runs) == 52
    for name in OF_THE_THESIS[1:]:
        number = own_table(name).source.place.removeprefix("Table ")
        for row in own_table(name).rows:
            found = [at for at, run in enumerate(runs) if number in str(run["tables"]).split(", ") and alike(run, row)]
            assert len(found) == 1, (name, row)
            seen.add((number, found[0]))
    stands = {(number, at) for at, run in enumerate(runs) for number in str(run["tables"]).split(", ")}
    assert seen == stands


def alike(run: Any, row: Any) -> bool:
    """Whether a row of a table shows a run: equal settings, where the row names them, and equal figures."""
    machine = {"CPU": "Xeon", "Intel Xeon CPU": "Xeon"}
    device = row.get("device", row.get("hardware"))
    same = all(row[key] == run[key] for key in ("deep_layers", "residual_layers", "hidden", "learning_rate")
               if key in row)  # fmt: skip
    same &= row.get("bidirectional", run["bidirectional"]) == run["bidirectional"]
    same &= device is None or machine.get(device, device) == run["device"]
    same &= row.get("framework", run["framework"]) == run["framework"]
    same &= "accuracy" not in row or abs(row["accuracy"] - run["accuracy"]) < 1e-7
    return bool(same and (abs(row["seconds"] - run["seconds"]) <= 1 or row["time"] in str(run["other_times"])))


def test_a_collapsed_run_is_one_constant_class() -> None:
    for run in own_table("thesis-runs").rows:
        assert run["collapsed"] == (float(run["accuracy"] or 0) < 0.2)
        if run["collapsed"] and run["correct_of_2947"] is not None:
            assert run["correct_of_2947"] in (532, 537)


def plain(**changes: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "id": "mine",
        "title": "Mine",
        "source": "me",
        "rows": [{"hidden": 8, "accuracy": 0.5}],
        **changes,
    }


def test_a_table_of_ones_own_in_the_same_form(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(plain(confidence="high", lines=[1, 2])))
    table = table_of("mine.json", tmp_path)
    assert (table.cite(), table.rows[0]["hidden"]) == ("me", 8)
    assert list(table.said_settings) == ["hidden"]
    assert table_of("thesis-runs", tmp_path) is own_table("thesis-runs")


def test_a_sweeps_folder_keeps_a_copy_of_a_table_that_is_not_ours(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (tmp_path / "mine.json").write_text(json.dumps(plain()))
    assert kept("thesis-runs", tmp_path, folder) == "thesis-runs"
    assert kept("mine.json", tmp_path, folder) == "references.json"
    (tmp_path / "mine.json").unlink()
    assert table_of("references.json", folder).id == "mine"
    with pytest.raises(UsageError, match="no such file"):
        kept("mine.json", tmp_path, folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Expecting"),
        ("[]", "no object"),
        (json.dumps(plain(schema=2)), "no object"),
        (json.dumps(plain(rows=[])), "rows"),
        (json.dumps(plain(rows=[{"accuracy": [1]}])), "rows.0.accuracy"),
        (json.dumps(plain(rows=[{"accuracy": 1e300}])), "rows.0.accuracy"),
        (json.dumps(plain(rows=[{"a": "x" * 2000}])), "rows.0.a"),
        (json.dumps(plain(rows=[{"a\nb": 1}])), "rows.0"),
        (json.dumps(plain(rows=[{"a": 1}] * 2000)), "rows"),
        (json.dumps(plain(figures={"accuracy": {"column": "accuracy", "divide_by": 0}})), "divide_by"),
        (json.dumps(plain(title=None)), "title"),
        ('{"schema": 1, "id": "x", "title": "x", "rows": [{"a": NaN}]}', "rows.0.a"),
        ("[" * 100_000, "RecursionError"),
    ],
)
def test_a_file_that_is_no_table_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="expected a table of references") as refused:
        read_table(path)
    assert len(str(refused.value).splitlines()) == 1
    if said != "RecursionError":
        assert said in str(refused.value)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        table_of("nothing.json", tmp_path)
    with pytest.raises(UsageError, match="no table of references 'thesis-run'; the project's own are kimm-devices"):
        table_of("thesis-run")
    (tmp_path / "large.json").write_bytes(b" " * (2 << 20))
    with pytest.raises(UsageError, match="longer than"):
        read_table(tmp_path / "large.json")
