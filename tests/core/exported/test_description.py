"""`export.json` is untrusted.

What it says must be typed, bounded and true of the model beside it.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.exported import read_description
from core.exported.description import LARGEST_BYTES, NAME, measured, model_bytes, write_description
from core.ground.errors import UsageError
from tests.core.exported import small
from tests.ran import python
from tests.tables import table

UNFIT = table("core/exported/unfit")


def edit(folder: Path, part: str, **changes: Any) -> None:
    """Change fields of the description or of a part of it, and drop those that become None."""
    content = json.loads((folder / NAME).read_bytes())
    fields = content[part] if part else content
    fields.update(changes)
    for name in [name for name in changes if changes[name] is None]:
        del fields[name]
    (folder / NAME).write_text(json.dumps(content))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert small.export(tmp_path) == read_description(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "export").mkdir()
    small.export(tmp_path / "export")
    return tmp_path / "export"


@pytest.mark.parametrize("row", UNFIT, ids=str)
def test_what_does_not_fit_together_is_refused_in_one_line(
    folder: Path, row: dict[str, Any]
) -> None:
    edit(folder, row.get("part", ""), **row["changes"])
    with pytest.raises(UsageError) as refused:
        read_description(folder)
    for said in (row["says"], str(folder), "export the run again"):
        assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("reader", "known"), [("npz", ()), ("app", ()), ("hapt", ("x", "y", "z"))])
def test_names_of_channels_that_an_old_export_made_of_their_number_are_dropped(
    folder: Path, reader: str, known: tuple[str, ...]
) -> None:
    edit(folder, "data", reader=reader)
    assert read_description(folder).input.channels == ("x", "y", "z")
    edit(folder, "input", units=None)
    assert read_description(folder).input.channels == known


@pytest.mark.parametrize(
    "content", [None, b"", b"[]", b"nonsense", b"[" * 100_000, b" " * (LARGEST_BYTES + 1)]
)
def test_anything_else_and_nothing_are_refused(folder: Path, content: bytes | None) -> None:
    if content is None:
        (folder / NAME).unlink()
    else:
        (folder / NAME).write_bytes(content)
    with pytest.raises(UsageError, match=NAME):
        read_description(folder)


@pytest.mark.parametrize("name", [NAME, "model.onnx"])
def test_no_link_leads_out_of_the_folder(folder: Path, name: str) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (folder / name).rename(outside / name)
    (folder / name).symlink_to(outside / name)
    with pytest.raises(UsageError, match="a link"):
        read_description(folder)


def test_a_pipe_is_refused_and_does_not_block(folder: Path) -> None:
    (folder / "model.onnx").unlink()
    os.mkfifo(folder / "model.onnx")
    with pytest.raises(UsageError, match="no plain file"):
        read_description(folder)


def test_a_model_that_grew_is_not_read_whole(folder: Path) -> None:
    description = read_description(folder)
    os.truncate(folder / "model.onnx", 1 << 40)
    with pytest.raises(UsageError, match="more than"):
        model_bytes(folder, description)
    with pytest.raises(UsageError, match="more than"):
        read_description(folder)


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
        write_description(tmp_path, replace(description, stride=float("nan")))  # type: ignore[arg-type]
    assert (tmp_path / NAME).read_bytes() == before


def test_the_room_loads_neither_tensorflow_nor_a_runtime() -> None:
    words = (
        "import sys, core.exported; print([name for name in ('tensorflow', 'keras', 'onnxruntime',"
        " 'ai_edge_litert', 'core.inventory') if name in sys.modules])"
    )
    assert python("-c", words) == "[]\n"
