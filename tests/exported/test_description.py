"""`export.json` is untrusted: what it says must be typed, bounded and true of the model beside it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import UsageError
from cluster.exported import read
from cluster.exported.description import LARGEST_BYTES, NAME, model_bytes, write
from cluster.exported.files import measured
from deploy.common.project import ROOT
from tests.exported import small


def edited(folder: Path, change: Callable[[Any], None]) -> None:
    content = json.loads((folder / NAME).read_bytes())
    change(content)
    (folder / NAME).write_text(json.dumps(content))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert small.export(tmp_path) == read(tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda it: it.update(schema=2), "schema"),
        (lambda it: it.pop("labels"), "labels"),
        (lambda it: it.update(labels=["one"]), "1 labels for 2 classes"),
        (lambda it: it.update(file="../../etc/passwd"), "where onnx is 'model.onnx'"),
        (lambda it: it.update(format="pickle"), "format"),
        (lambda it: it.update(bytes=-1), "bytes"),
        (lambda it: it.update(bytes=True), "bytes"),
        (lambda it: it.update(bytes=2**40), "bytes"),
        (lambda it: it["input"].update(dtype="object"), "input.dtype"),
        (lambda it: it.update(sha256="0" * 64), "another file than export.json says"),
        (lambda it: it["input"].update(samples=7), "shape (8, 3) of 7 x 3"),
        (lambda it: it["input"].update(samples=2**40, shape=[2**40, 3]), "shape (1099511627776, 3) where 1 to"),
        (lambda it: it["input"].update(samples=0, shape=[0, 3]), "shape (0, 3) where 1 to"),
        (lambda it: it["standardization"].update(std=[1.0, 0.0, 1.0]), "standardization.std.1"),
        (lambda it: it["timing"].update(median_ms="1e999"), "timing.median_ms"),
        (lambda it: it["output"].update(name="a\nb"), "output.name"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_one_line(
    tmp_path: Path, change: Callable[[Any], None], named: str
) -> None:
    small.export(tmp_path)
    edited(tmp_path, change)
    with pytest.raises(UsageError) as refused:
        read(tmp_path)
    assert named in str(refused.value)
    assert str(tmp_path) in str(refused.value)
    assert "export the run again" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"nonsense", b"[" * 100_000, b" " * (LARGEST_BYTES + 1)])
def test_anything_else_is_refused(tmp_path: Path, content: bytes) -> None:
    small.export(tmp_path)
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(UsageError, match=NAME):
        read(tmp_path)


def test_a_folder_without_an_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"export\.json"):
        read(tmp_path)


def test_no_link_leads_out_of_the_folder(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "export"
    outside.mkdir()
    folder.mkdir()
    small.export(outside)
    small.export(folder)
    for name in (NAME, "model.onnx"):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / name).symlink_to(outside / name)
        with pytest.raises(UsageError, match="a link"):
            read(folder)
        (folder / name).unlink()
        (folder / name).write_bytes(content)
    assert read(folder).format == "onnx"


def test_a_pipe_is_refused_and_does_not_block(tmp_path: Path) -> None:
    small.export(tmp_path)
    (tmp_path / "model.onnx").unlink()
    os.mkfifo(tmp_path / "model.onnx")
    with pytest.raises(UsageError, match="no plain file"):
        read(tmp_path)


def test_a_model_that_grew_is_not_read_whole(tmp_path: Path) -> None:
    description = small.export(tmp_path)
    with (tmp_path / "model.onnx").open("ab") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(UsageError, match="more than"):
        model_bytes(tmp_path, description)
    with pytest.raises(UsageError, match="more than"):
        read(tmp_path)


def test_a_folder_is_hashed_with_its_names_and_without_links(tmp_path: Path) -> None:
    folder = tmp_path / "saved_model"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph")
    (folder / "variables" / "data").write_bytes(b"values")
    before = measured(folder)
    assert before[1] == len(b"graph") + len(b"values")
    (folder / "variables" / "data").rename(folder / "variables" / "other")
    assert measured(folder)[0] != before[0]
    (folder / "assets").symlink_to("/etc")
    with pytest.raises(ValueError, match="a link"):
        measured(folder)


def test_numbers_that_json_has_no_word_for_are_not_written(tmp_path: Path) -> None:
    description = small.export(tmp_path)
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        write(tmp_path, replace(description, stride=float("nan")))  # type: ignore[arg-type]
    assert (tmp_path / NAME).read_bytes() == before


def test_the_room_loads_neither_tensorflow_nor_a_runtime() -> None:
    words = (
        "import sys, cluster.exported; "
        "print([name for name in ('tensorflow', 'keras', 'onnxruntime', 'ai_edge_litert', 'cluster.inventory') "
        "if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", words], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
