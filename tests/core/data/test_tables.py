"""Tables: columns of numbers and words, their targets, groups and tests.

Every wrong line is named by its number.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from core.data import Dataset
from core.data.dataset import Array
from tests.core.data.desk import INPUTS, Desk, has, refused, wrong

ROWS = 40
TABLE: dict[str, list[Any]] = {
    "age": [20 + row % 30 for row in range(ROWS)],
    "height": [1.5 + row / 100 for row in range(ROWS)],
    "city": ["Bonn", "Ulm", "Köln", "Bonn"] * (ROWS // 4),
    "person": [row // 4 for row in range(ROWS)],
    "target": ["no", "yes"] * (ROWS // 2),
}


@pytest.fixture(params=["people.csv", "people.parquet"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def read(desk: Desk, name: str, table: Any = None, **columns: Any) -> Dataset:
    return desk.read(name, table, columns=columns)


def refuses(desk: Desk, said: str, name: str, table: Any = None, **columns: Any) -> None:
    desk.refuses(said, name, table, columns=columns)


def test_numbers_stay_and_words_become_a_column_each(desk: Desk, name: str) -> None:
    dataset = read(desk, name, TABLE)
    has(
        dataset,
        name="people",
        labels=("no", "yes"),
        task="classification",
        inputs=Array("inputs.float32", "float32", (6,)),
        standardized=True,
        train_windows=32,
        test_windows=8,
    )
    rows = sorted(zip(dataset.windows().tolist(), dataset.classes().tolist(), strict=True))
    words = {"Bonn": [1, 0, 0], "Köln": [0, 1, 0], "Ulm": [0, 0, 1]}
    expected = [
        ([age, np.float32(height), *words[city], person], row % 2)
        for row, (age, height, city, person, _) in enumerate(zip(*TABLE.values(), strict=True))
    ]
    assert rows == sorted(expected)


def test_the_same_table_has_the_same_content_in_both_files(desk: Desk) -> None:
    desk.write("people.CSV", TABLE, "\t")
    desk.write("people.csv", TABLE, ";")
    desk.write("people.parquet", TABLE)
    found = [
        read(desk, f"people.{kind}", group="person").sha256 for kind in ("CSV", "csv", "parquet")
    ]
    assert found == found[:1] * 3


def test_whole_groups_are_held_out_and_named_by_their_numbers(desk: Desk, name: str) -> None:
    columns = {"group": "person", "inputs": ["age", "height"]}
    dataset = read(desk, name, TABLE, **columns)
    train, test = np.split(dataset.subjects(), [dataset.train_windows])
    assert dataset.input_shape == (2,)
    assert (len(set(train)), len(set(test)), set(train) & set(test)) == (8, 2, set())
    words = {**TABLE, "person": [f"p{number:02}" for number in TABLE["person"]]}
    has(read(desk, name, words, **columns), subjects=dataset.subjects().tolist())


def test_a_column_may_say_what_is_for_the_test(desk: Desk, name: str) -> None:
    table = {**TABLE, "set": ["train"] * 34 + ["test"] * 6}
    dataset = read(desk, name, table, test="set", inputs=["age"])
    has(dataset, test_windows=6, windows=[[age] for age in TABLE["age"]])


@pytest.mark.parametrize("row", INPUTS["columns of tables"], ids=str)
def test_what_the_columns_are_is_named_or_seen(desk: Desk, name: str, row: dict[str, Any]) -> None:
    has(read(desk, name, TABLE, **row["columns"]), **row["has"])


def test_the_values_of_a_regression_are_those_of_the_column(desk: Desk, name: str) -> None:
    dataset = read(desk, name, TABLE, target=["height"], inputs=["age"])
    values = np.sort(dataset.target_values()[:, 0])
    np.testing.assert_allclose(values, TABLE["height"], rtol=1e-6)


def test_numbers_and_truth_values_of_a_parquet_file_may_be_labels(desk: Desk) -> None:
    truths = [row % 5 == 0 for row in range(ROWS)]
    table = {**TABLE, "a": [0, 1] * (ROWS // 2), "b": truths}
    dataset = read(desk, "t.parquet", table, target=["a", "b"], inputs=["age"])
    tags = Array("targets.uint8", "uint8", (2,))
    has(dataset, task="multilabel", labels=("a", "b"), targets=tags)


def test_numbers_may_be_words(desk: Desk, name: str) -> None:
    dataset = read(desk, name, TABLE, inputs=["person"], categories=["person"])
    assert dataset.input_shape == (10,)
    assert set(dataset.windows().sum(1)) == {1.0}


def test_an_unknown_setting_is_refused(desk: Desk, name: str) -> None:
    with refused("unknown setting 'tagret'"):
        read(desk, name, TABLE, tagret=["age"])


@wrong("tables")
def test_what_cannot_be_used_is_one_line_with_its_place(
    desk: Desk, name: str, row: dict[str, Any]
) -> None:
    table = {column: list(values) for column, values in TABLE.items()}
    for column, value in row.get("put", {}).items():
        table[column][row["row"]] = value
    said = row["says"]
    if row.get("named"):
        place = f":{row['row'] + 2}" if name.endswith("csv") else f"row {row['row']}"
        said = f"{place}: {said}"
    refuses(desk, said, name, table, **row.get("columns", {}))


AGES = TABLE["age"]


@pytest.mark.parametrize(
    ("table", "columns", "said"),
    [
        (
            {"age": AGES},
            {},
            "no column is named target, label, class, y: set ... to one of age",
        ),
        ({"y": AGES}, {}, "expected a column to predict from"),
        ({**TABLE, "person": [3] * ROWS}, {"group": "person"}, "at least 2 groups"),
        ({column: [] for column in TABLE}, {}, ": expected "),
    ],
    ids=["no usual target", "nothing to predict from", "a lonely group", "no row"],
)
def test_a_table_that_lacks_something_is_refused(
    desk: Desk, name: str, table: dict[str, Any], columns: dict[str, Any], said: str
) -> None:
    refuses(desk, said, name, table, **columns)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1"])
def test_what_is_no_parquet_is_said(desk: Desk, content: bytes) -> None:
    desk.refuses("t.parquet: not a Parquet file ( ... ); save it again", "t.parquet", content)


def of_height(values: list[Any]) -> dict[str, list[Any]]:
    """The table with these heights, over and over."""
    return {**TABLE, "height": (values * ROWS)[:ROWS]}


@pytest.mark.parametrize(
    ("heights", "said"),
    [
        ([1.5] * 9 + [None], "t.parquet: row 9: height: expected a value, got null"),
        (
            [[1.0]],
            "height: expected numbers or words, got list ... name the other columns in",
        ),
        (["0.5"], "t.parquet: height: expected words as its type says, got numbers as text"),
        (["0,5"], "row 0: height: expected a number, got '0,5': the commas are decimal"),
    ],
)
def test_nulls_lists_and_numbers_as_text_in_a_parquet_file_are_named(
    desk: Desk, heights: list[Any], said: str
) -> None:
    desk.refuses(said, "t.parquet", of_height(heights))
    assert read(desk, "t.parquet", inputs=["age"]).input_shape == (1,)
    if heights == ["0.5"]:
        words = read(desk, "t.parquet", categories=["height"], inputs=["height"])
        assert words.input_shape == (1,)


def test_a_parquet_file_that_lost_its_bytes_is_named(desk: Desk) -> None:
    content = bytearray(desk.write("t.parquet", TABLE).read_bytes())
    content[4:60] = bytes(56)
    desk.refuses("t.parquet: damaged", "t.parquet", bytes(content))


def test_too_many_words_and_too_many_whole_numbers_have_a_remedy(desk: Desk) -> None:
    numbers = list(range(1200))
    table = {"word": [f"w{row}" for row in numbers], "y": [0, 1] * 600, "n": numbers}
    refuses(desk, "word: expected at most 256 different words ... columns.inputs", "t.csv", table)
    said = "n: more than 1000 different whole numbers: set ... task to regression"
    refuses(desk, said, "t.csv", target=["n"], inputs=["y"])


def test_the_target_is_what_all_its_rows_are(desk: Desk) -> None:
    table = {**TABLE, "target": ["1", "01", "2.0", "2"] * (ROWS // 4)}
    assert read(desk, "t.csv", table).labels == ("1", "2")
    table["target"] = ["1", "2", "other", "2"] * (ROWS // 4)
    said = ":4: target: expected a finite number, got 'other'; ... categories"
    refuses(desk, said, "t.csv", table)
    assert read(desk, "t.csv", categories=["target"]).labels == ("1", "2", "other")


def test_the_y_axis_is_no_usual_target(desk: Desk, name: str) -> None:
    values = [row / 7 for row in range(ROWS)]
    third = "Z" if name.endswith("csv") else "z"
    said = "no column is named ... , and y beside x and z is an axis: set ... target"
    refuses(desk, said, name, {"x": values, "y": values, third: values})
    assert read(desk, name, target=["y"]).task == "regression"
    assert read(desk, name, {"x": values, "y": values}).task == "regression"


def test_the_index_of_pandas_is_no_input_unless_it_is_named(desk: Desk) -> None:
    indexed = pa.table({**TABLE, "__index_level_0__": list(range(ROWS))})
    about = {"pandas": '{"index_columns": ["person", {"kind": "range"}]}'}
    path = desk.folder / "t.parquet"
    parquet.write_table(indexed.replace_schema_metadata(about), path)
    dataset = desk.read(path)
    assert dataset.input_shape == (5,)
    assert "no input is " in dataset.held_out.note
    assert "person" in dataset.held_out.note
    assert read(desk, "t.parquet", inputs=["age", "person"]).input_shape == (2,)
    assert read(desk, "t.csv", {"Unnamed: 0": TABLE["age"], **TABLE}).input_shape == (6,)
