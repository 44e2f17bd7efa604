"""Tables: columns of numbers and words, their targets, groups and tests; every wrong line by its number."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cluster.data import Dataset, find_source, prepare
from cluster.errors import DataError

ROWS = 40
TABLE: dict[str, list[Any]] = {
    "age": [20 + row % 30 for row in range(ROWS)],
    "height": [1.5 + row / 100 for row in range(ROWS)],
    "city": [("Bonn", "Ulm", "Köln")[row % 3] for row in range(ROWS)],
    "person": [row // 4 for row in range(ROWS)],
    "target": [("no", "yes")[row % 2] for row in range(ROWS)],
}


def write(path: Path, table: Mapping[str, list[Any]], delimiter: str = ",") -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(dict(table)), path, row_group_size=7)
        return path
    lines = [table.keys(), *zip(*table.values(), strict=True)]
    path.write_text("".join(delimiter.join(map(str, line)) + "\n" for line in lines), encoding="utf-8")
    return path


def read(path: Path, cache: Path, **columns: Any) -> Dataset:
    source = find_source(str(path), {}, path, path)
    return prepare(source, cache=cache / "cache", options={"columns": columns})


@pytest.fixture(params=["csv", "parquet"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"people.{request.param}"


def test_numbers_stay_and_words_become_a_column_each(path: Path, tmp_path: Path) -> None:
    dataset = read(write(path, TABLE), tmp_path)
    assert (dataset.name, dataset.labels, dataset.task) == ("people", ("no", "yes"), "classification")
    assert (dataset.inputs.dtype, dataset.input_shape, dataset.standardized) == ("float32", (6,), True)
    assert (dataset.train_windows, dataset.test_windows) == (32, 8)
    rows = sorted(zip(dataset.windows().tolist(), dataset.classes().tolist(), strict=True))
    city = {"Bonn": [1, 0, 0], "Köln": [0, 1, 0], "Ulm": [0, 0, 1]}
    expected: list[tuple[list[Any], int]] = [
        (
            [float(TABLE["age"][row]), np.float32(TABLE["height"][row]), *city[TABLE["city"][row]], float(row // 4)],
            row % 2,
        )
        for row in range(ROWS)
    ]
    np.testing.assert_allclose([x for x, _ in rows], [x for x, _ in sorted(expected)])
    assert [y for _, y in rows] == [y for _, y in sorted(expected)]


def test_the_same_table_has_the_same_content_in_both_files(tmp_path: Path) -> None:
    found = {
        read(write(tmp_path / f"people.{kind}", TABLE, delimiter), tmp_path, group="person").sha256
        for kind, delimiter in (("csv", ";"), ("CSV", "\t"), ("parquet", ""))
    }
    assert len(found) == 1


def test_whole_groups_are_held_out_and_named_by_their_numbers(path: Path, tmp_path: Path) -> None:
    dataset = read(write(path, TABLE), tmp_path, group="person", inputs=["age", "height"])
    train, test = np.split(dataset.subjects(), [dataset.train_windows])
    assert dataset.input_shape == (2,)
    assert (len(set(train.tolist())), len(set(test.tolist()))) == (8, 2)
    assert not set(train.tolist()) & set(test.tolist())
    words = {**TABLE, "person": [f"p{number:02}" for number in TABLE["person"]]}
    named = read(write(path, words), tmp_path, group="person", inputs=["age", "height"])
    np.testing.assert_array_equal(named.subjects(), dataset.subjects())


def test_a_column_may_say_what_is_for_the_test(path: Path, tmp_path: Path) -> None:
    table = {**TABLE, "set": ["test" if row > 33 else "train" for row in range(ROWS)]}
    dataset = read(write(path, table), tmp_path, test="set", inputs=["age"])
    assert dataset.windows()[:, 0].tolist() == TABLE["age"]
    assert dataset.test_windows == 6


def test_what_the_target_looks_like_decides_the_task(path: Path, tmp_path: Path) -> None:
    table = {**TABLE, "a": [row % 2 for row in range(ROWS)], "b": [row % 5 == 0 for row in range(ROWS)]}
    write(path, table)
    whole = read(path, tmp_path, target=["person"], inputs=["height"])
    assert (whole.task, whole.labels[8:], whole.outputs) == ("classification", ("8", "9"), 10)
    value = read(path, tmp_path, target=["height"], inputs=["age"])
    assert (value.task, value.targets.shape, value.outputs, value.labels) == ("regression", (1,), 1, ())
    np.testing.assert_allclose(np.sort(value.target_values()[:, 0]), TABLE["height"], rtol=1e-6)
    asked = read(path, tmp_path, target=["age"], inputs=["height"], task="regression")
    assert (asked.task, asked.targets.dtype) == ("regression", "float32")
    several = read(path, tmp_path, target=["age", "height"], inputs=["a"])
    assert (several.task, several.outputs) == ("regression", 2)
    if path.suffix == ".parquet":
        tags = read(path, tmp_path, target=["a", "b"], inputs=["age"])
        assert (tags.task, tags.labels, tags.targets.dtype) == ("multilabel", ("a", "b"), "uint8")


def test_numbers_may_be_words(path: Path, tmp_path: Path) -> None:
    dataset = read(write(path, TABLE), tmp_path, inputs=["person"], categories=["person"])
    assert dataset.input_shape == (10,)
    assert set(dataset.windows().sum(1).tolist()) == {1.0}


def changed(name: str, row: int, value: Any) -> dict[str, list[Any]]:
    values = list(TABLE[name])
    values[row] = value
    return {**TABLE, name: values}


WRONG: dict[str, tuple[dict[str, list[Any]], dict[str, Any], str]] = {
    "no such column": (TABLE, {"target": ["targt"]}, r"columns\.target: no column 'targt': did you mean target"),
    "no usual target": ({"age": TABLE["age"]}, {}, "no column is named target, label, class, y: set .* to one of age"),
    "a column twice": (TABLE, {"inputs": ["target"]}, "'target' is named twice"),
    "nothing to predict from": ({"y": TABLE["age"]}, {}, "expected a column to predict from"),
    "a number that is none": (changed("height", 11, float("nan")), {}, r"(:13|row 11): height: expected a finite"),
    "too large a number": (changed("height", 2, 1e300), {}, r"(:4|row 2): height: expected a finite .*1e\+?300"),
    "an empty word": (changed("city", 5, ""), {}, r"(:7|row 5): city: expected a word, got nothing"),
    "a strange test": (changed("person", 3, 7), {"test": "person"}, r"person: expected train or test, or 0 or 1"),
    "a lonely group": ({**TABLE, "person": [3] * ROWS}, {"group": "person"}, "at least 2 groups"),
    "a lonely class": (changed("target", 9, "maybe"), {}, "class 'maybe' has no training row"),
    "words for a quantity": (TABLE, {"task": "regression"}, "regression needs columns of numbers, got target"),
    "halves for classes": (TABLE, {"target": ["height"], "task": "classification"}, "needs one column of words or"),
    "words among targets": (TABLE, {"target": ["age", "city"]}, "city: expected numbers in each of several"),
    "no row": ({name: [] for name in TABLE}, {}, "expected (a line of column names|numbers or words, got null)"),
    "an unknown setting": (TABLE, {"tagret": ["age"]}, "unknown setting 'tagret'"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_used_is_one_line_with_its_place(path: Path, tmp_path: Path, name: str) -> None:
    table, columns, expected = WRONG[name]
    with pytest.raises(DataError) as caught:
        read(write(path, table), tmp_path, **columns)
    line = str(caught.value)
    assert re.search(expected, line), line
    assert "\n" not in line
    assert not list((tmp_path / "cache").glob("*"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "expected a line of column names and rows"),
        (b"a,y\n", "expected a line of column names and rows"),
        (b"1,2\n3,4\n", ":1: expected a name for each column, each once, got '1'"),
        (b"a,a,y\n1,2,3\n", "got 'a' as column 2"),
        (b"a,y\n1,0\n2\n", ":3: expected 2 values as the first line names, got 1"),
        (b"a,y\n1,0\n2,1,\n", ":3: expected 2 values as the first line names, got 3"),
        (b"a,y\n1,0\n\xff,1\n2,0\n", ":3: expected UTF-8, .*; save it as UTF-8"),
        (b"\xff\xfe,y\n", ":1: .*save it as UTF-8"),
        (b'a,y\n1,0\n"2"x,1\n', ":3: .*; correct the line"),
        (b'a,y\n1,0\n"2,1\n', "unexpected end of data; correct the line"),
        (b"a,y\n" + b"1,0\n2,1\n" * 5 + b",1\n", ":12: a: expected a finite number, got ''"),
        (b"a,y\n1,0\n" + b"x" * 200_000 + b",1\n", ":3: field larger than field limit"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError) as caught:
        read(tmp_path / "t.csv", tmp_path)
    assert re.search(expected, str(caught.value)), caught.value
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").glob("*"))


def test_quotes_blank_lines_and_a_mark_of_byte_order_are_read(tmp_path: Path) -> None:
    rows = "\n\n".join(f'"{row}","a, ""b""\nc",{row % 2}' for row in range(10))
    (tmp_path / "t.csv").write_text(f'\ufeff"a b",word,y\r\n{rows}\r\n', encoding="utf-8")
    dataset = read(tmp_path / "t.csv", tmp_path)
    assert (dataset.input_shape, dataset.labels) == ((2,), ("0", "1"))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1"])
def test_what_is_no_parquet_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"t\.parquet: not a Parquet file \(.*\); save it again"):
        read(tmp_path / "t.parquet", tmp_path)


def test_nulls_lists_and_a_cut_file_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", changed("height", 9, None))
    with pytest.raises(DataError, match=r"t\.parquet: row 9: height: expected a value, got null"):
        read(path, tmp_path)
    write(path, {**TABLE, "height": [[1.0]] * ROWS})
    with pytest.raises(DataError, match=r"height: expected numbers or words, got list.*leave it out"):
        read(path, tmp_path)
    assert read(path, tmp_path, inputs=["age"]).input_shape == (1,)
    content = bytearray(write(path, TABLE).read_bytes())
    content[4:60] = bytes(56)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"t\.parquet: damaged"):
        read(path, tmp_path)


def test_too_many_words_and_too_many_whole_numbers_have_a_remedy(tmp_path: Path) -> None:
    count = 1200
    table: dict[str, list[Any]] = {
        "word": [f"w{row}" for row in range(count)],
        "y": [row % 2 for row in range(count)],
        "n": list(range(count)),
    }
    write(tmp_path / "t.csv", table)
    with pytest.raises(DataError, match=r"word: expected at most 256 different words.*columns\.inputs"):
        read(tmp_path / "t.csv", tmp_path)
    with pytest.raises(DataError, match=r"n: more than 1000 different whole numbers: set .*task to regression"):
        read(tmp_path / "t.csv", tmp_path, target=["n"], inputs=["y"])
