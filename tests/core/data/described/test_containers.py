"""Documents, workbooks and arrays that are damaged, too large, or lack what reads them."""

import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pyarrow
import pytest
from pyarrow.parquet import write_table
from scipy.io import savemat

from core.data.described import container_rows
from core.data.described.members import LARGEST_DOCUMENT_BYTES
from tests.core.data.described.excel import book
from tests.core.data.described.movement import DESCRIBED_SO, put, windows_of
from tests.core.data.desk import refused
from tests.tables import table

CBOR: Mapping[str, Any] = {"files": "r.cbor", "json": {"rows": "rows"}, **DESCRIBED_SO}
SHEETS: Mapping[str, Any] = {
    **DESCRIBED_SO,
    "files": "r.xls",
    "sheets": True,
    "channels": [{**one, "sensor": one["name"]} for one in DESCRIBED_SO["channels"]],
}
ACC: dict[str, list[list[str | float]]] = {
    "acc": [["time", "ax", "ay", "az", "label", "person"], [0.0, 0.0, 0.0, 1.0, "rest", "anna"]]
}


def read(folder: Path, name: str, content: bytes, form: Mapping[str, Any]) -> None:
    windows_of(put(folder / "own", {name: content}, form))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        *((bytes.fromhex(content), says) for content, says in table("core/data/tables", "cbor")),
        (cbor2.dumps({"rows": 7}), "expected a list at 'rows', got int"),
        (cbor2.dumps({"rows": [{name: [] for name in ("time", "ax")}]}), "expected a column 'ay'"),
    ],
    ids=range(10),
)
def test_cbor_that_is_no_document_of_readings(content: bytes, says: str, tmp_path: Path) -> None:
    with refused(f"r.cbor ... {says}"):
        read(tmp_path, "r.cbor", content, CBOR)


@pytest.mark.parametrize("interval_ms", ["20", 0, 1001, None])
def test_an_interval_that_is_none_of_milliseconds(interval_ms: Any, tmp_path: Path) -> None:
    document = {"interval_ms": interval_ms, "rows": [[1.0] * 6]}
    form = {**CBOR, "json": {"rows": "rows", "interval_ms": "interval_ms"}}
    with refused("r.cbor: interval_ms: expected milliseconds between two readings, got"):
        read(tmp_path, "r.cbor", cbor2.dumps(document), form)


def test_a_value_of_another_kind_is_named_and_not_written_out(tmp_path: Path) -> None:
    names = ("time", "ax", "ay", "az", "gx", "gy", "gz", "label", "person")
    row: dict[str, Any] = dict.fromkeys(names, 1.0) | {"label": "rest", "person": "anna"}
    row["ax"] = [[1.0] * 1000] * 1000
    with refused("ax: expected a number, got 'a list'"):
        read(tmp_path, "r.cbor", cbor2.dumps({"rows": [row]}), CBOR)


def cells_far_apart() -> bytes:
    """A workbook that says it has a cell in row 65,535 of column 65,535."""
    whole = bytearray(book({**ACC, "gyro": ACC["acc"]}))
    place = whole.index(b"\x03\x02\x0e\x00") + 4
    whole[place : place + 4] = b"\xff" * 4
    return bytes(whole)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PK\x03\x04", "expected Excel's format .xls; export that, or CSV"),
        (b"\xd0\xcf\x11\xe0 cut short", "not a whole file of Excel; export it again"),
        (cells_far_apart(), "not a whole file of Excel; export it again"),
        (book(ACC), "no sheet 'gyro', got acc; record with that sensor"),
        (book({**ACC, "gyro": []}), "expected a line of names, got none"),
        (book({**ACC, "gyro": [["time", "gx"]]}), "expected a column 'gy', got time, gx"),
    ],
)
def test_a_workbook_that_cannot_be_read(content: bytes, says: str, tmp_path: Path) -> None:
    with refused(f"r.xls ... {says}"):
        read(tmp_path, "r.xls", content, SHEETS)


@pytest.mark.parametrize(
    ("name", "form", "missing"), [("r.cbor", CBOR, "cbor2"), ("r.xls", SHEETS, "python_calamine")]
)
def test_a_library_that_is_not_there_is_named(
    name: str,
    form: Mapping[str, Any],
    missing: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    package = missing.replace("_", "-")
    with refused(f"{package}, which is not installed; run `pip install {package}`, or export"):
        read(tmp_path, name, b"\x80", form)


def test_a_document_larger_than_its_bound(tmp_path: Path) -> None:
    folder = put(tmp_path / "own", {"r.json": b""}, {**CBOR, "files": "r.json"})
    with (folder / "r.json").open("wb") as stream:
        stream.truncate(LARGEST_DOCUMENT_BYTES + 1)
    with refused(f"r.json: larger than {LARGEST_DOCUMENT_BYTES} bytes"):
        windows_of(folder)


def test_arrays_and_groups_of_rows_that_unpack_to_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_rows, "LARGEST_TEXT_BYTES", 8000)
    monkeypatch.setattr(container_rows, "MOST_COLUMNS", 2)
    large = np.zeros((2000, 8))
    mat, npz, cube, parquet, wide = (io.BytesIO() for _ in range(5))
    np.savez(cube, x=np.zeros((2, 2, 2)))
    savemat(mat, {"x": large}, do_compression=True)
    np.savez_compressed(npz, x=large)
    write_table(pyarrow.table({"x": np.arange(2000.0)}), parquet)
    write_table(pyarrow.table({name: [1.0] for name in "xyz"}), wide)
    form = {**DESCRIBED_SO, "label": {"column": "1"}, "array": "x"}
    for name, stream, said in (
        ("r.mat", mat, "got an array of 16000 values; save it so"),
        ("r.npz", npz, "unpacks to 128128 bytes"),
        ("c.npz", cube, "x: expected numbers of shape (readings, columns), got float64 (2, 2, 2)"),
        ("r.parquet", parquet, "1 columns and ... bytes in a group of rows, at most 2 and 8000"),
        ("w.parquet", wide, "3 columns and"),
    ):
        own = {**form, "files": name}
        if name.endswith("parquet"):
            del own["array"]
        with refused(f"{name}: ... {said}"):
            read(tmp_path, name, stream.getvalue(), own)
