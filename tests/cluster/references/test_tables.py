"""The tables of the papers: what each cell has to be, and files that are none."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.references.tables import PUBLISHED, kept, own_names, own_table, read_table, table_of
from core.errors import UsageError

TEST_WINDOWS = 2947
OF_THE_THESIS = [name for name in own_names() if name.startswith("thesis-table-")]


def test_each_of_our_own_has_a_source_columns_and_nothing_unexplained() -> None:
    for name in own_names():
        table = own_table(name)
        assert table.id == name
        assert table.source.work, name
        assert table.source.place, name
        columns = {
            "seconds_N" if column.startswith("seconds_") else column
            for row in table.rows
            for column in row
        }
        assert columns <= {*table.columns, "model"}, name
        text = (PUBLISHED / f"{name}.json").read_text()
        assert set(json.loads(text)) <= {
            "schema",
            "device",
            *type(table).__dataclass_fields__,
        }, name


def test_the_tables_5_to_21_are_there_with_their_numbers() -> None:
    assert [own_table(name).source.place for name in OF_THE_THESIS] == [
        f"Table {at}" for at in range(5, 22)
    ]


@pytest.mark.parametrize("name", [*OF_THE_THESIS, "thesis-runs"])
def test_accuracies_are_whole_numbers_of_windows_and_seconds_the_time_as_it_is_printed(
    name: str,
) -> None:
    for row in own_table(name).rows:
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
    runs = own_table("thesis-runs").rows
    tables = [str(run["tables"]).split(", ") for run in runs]
    seen = set()
    assert len(runs) == 52
    for name in OF_THE_THESIS[1:]:
        number = own_table(name).source.place.removeprefix("Table ")
        for row in own_table(name).rows:
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


def test_a_plain_csv_is_a_table_too(tmp_path: Path) -> None:
    text = "device,jobs.train.model.hidden,accuracy\nmy PC,32,0.912\n,64,\n"
    (tmp_path / "mine.csv").write_text(text)
    table = table_of("mine.csv", tmp_path)
    assert [dict(row) for row in table.rows] == [
        {"device": "my PC", "jobs.train.model.hidden": 32, "accuracy": 0.912},
        {"device": None, "jobs.train.model.hidden": 64, "accuracy": None},
    ]
    assert list(table.said_settings) == ["jobs.train.model.hidden"]
    assert list(table.said_figures) == ["accuracy"]
    assert kept("mine.csv", tmp_path, tmp_path) == "references.json"
    assert table_of("references.json", tmp_path) == table


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "an empty file"),
        (b"hidden,hidden\n1,2\n", "two columns of one name"),
        (b"hidden,accuracy\n1\n", "a row of 1 cells below 2 headings"),
        (b'hidden\n"1\n', "line 2: unexpected end of data"),
        (b"hidden\nNaN\n", "rows.0.hidden"),
        (b"hidden\n\xff\n", "codec can't decode"),
        (b"hidden\n", "at least 1 item"),
        (b"hidden\n" + b"1\n" * (1 << 19), "more than 1048576 bytes"),
    ],
)
def test_a_csv_that_is_no_table_is_refused_in_one_line(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "mine.csv").write_bytes(content)
    with pytest.raises(UsageError, match=rf"^.*mine\.csv.*{said}.*$") as refused:
        table_of("mine.csv", tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": 2}, "no object"),
        ({"rows": []}, "rows"),
        ({"rows": [{"accuracy": [1]}]}, "rows.0.accuracy"),
        ({"rows": [{"accuracy": 1e300}]}, "rows.0.accuracy"),
        ({"rows": [{"a": "x" * 2000}]}, "rows.0.a"),
        ({"rows": [{"a\nb": 1}]}, "rows.0"),
        ({"rows": [{"a": 1}] * 2000}, "rows"),
        ({"rows": [{"a": float("nan")}]}, "rows.0.a"),
        ({"figures": {"accuracy": {"column": "accuracy", "divide_by": 0}}}, "divide_by"),
        ({"title": None}, "title"),
    ],
)
def test_a_changed_table_is_refused_in_one_line(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    refused_in_one_line(tmp_path / "table.json", json.dumps(plain(**changes)), said)


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "Expecting"), ("[]", "no object"), ("[" * 100_000, "")],
    ids=["half", "a list", "deep"],
)
def test_a_file_that_is_no_table_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    refused_in_one_line(tmp_path / "table.json", text, said)


def refused_in_one_line(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    with pytest.raises(UsageError, match=f"expected a table of references.*{said}") as refused:
        read_table(path)
    assert "\n" not in str(refused.value)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        table_of("nothing.json", tmp_path)
    with pytest.raises(
        UsageError, match="no table of references 'thesis-run'; the project's own are kimm-devices"
    ):
        table_of("thesis-run")
    (tmp_path / "large.json").write_bytes(b" " * (2 << 20))
    with pytest.raises(UsageError, match="longer than"):
        read_table(tmp_path / "large.json")
