"""An export answers through ONNX Runtime or LiteRT, or says in one line why it cannot."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.exported import open_model, read_description, write_description
from core.exported.description import Format
from core.exported.runtimes import refuse_other_files
from core.ground.errors import UsageError
from tests.core.exported import small
from tests.lazy import onnx
from tests.tables import table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small.export(tmp_path)
    return tmp_path


SHAPE = (small.STEPS, small.CHANNELS)
WINDOWS = np.random.default_rng(0).normal(size=(5, *SHAPE)).astype(np.float32)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_any_number_of_windows_is_answered(folder: Path, count: int) -> None:
    found = open_model(folder).logits(WINDOWS[:count])
    assert found.dtype == np.float32
    assert found.shape == (count, small.CLASSES)
    np.testing.assert_allclose(found, small.answers(WINDOWS[:count]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [SHAPE, (1, small.STEPS, 9), (1, 2, 3, 4)])
def test_another_shape_is_refused(folder: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected windows of shape"):
        open_model(folder).logits(np.zeros(shape, np.float32))


@pytest.mark.parametrize(("kind", "missing", "said"), table("core/exported/tables", "unopened"))
def test_what_cannot_be_opened_is_refused_in_one_line_with_the_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Format,
    missing: str | None,
    said: str,
) -> None:
    small.export(tmp_path, b"no model at all", kind)
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    refuses(said, open_model, tmp_path)


def refuses(said: str, call: Callable[[Any], Any], given: Any) -> None:
    with pytest.raises(UsageError) as refused:
        call(given)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_model_of_other_names_is_refused(folder: Path) -> None:
    description = read_description(folder)
    write_description(folder, replace(description, input=replace(description.input, name="images")))
    refuses("where export.json says images", open_model, folder)


def test_a_changed_model_is_refused(folder: Path) -> None:
    content = bytearray((folder / "model.onnx").read_bytes())
    content[-1] ^= 1
    (folder / "model.onnx").write_bytes(content)
    refuses("another file than", open_model, folder)


def test_a_model_of_one_window_alone_is_refused_in_one_line(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(small.onnx_model())
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    small.export(tmp_path, model.SerializeToString())
    assert open_model(tmp_path).logits(WINDOWS[:1]).shape == (1, small.CLASSES)
    refuses("the model does not compute", open_model(tmp_path).logits, WINDOWS)


def test_a_model_of_other_classes_is_refused(folder: Path) -> None:
    description = read_description(folder)
    output = replace(description.output, classes=3)
    write_description(folder, replace(description, output=output, labels=("a", "b", "c")))
    refuses("expected float32 of shape (1, 3)", open_model(folder).logits, WINDOWS[:1])


SECRET = b"what the owner alone may read..."


def reading(location: str, where: str = "initializer") -> bytes:
    """A model whose logits are the bytes of a file."""
    size = len(SECRET)
    constant = onnx.TensorProto(name="bytes", data_type=onnx.TensorProto.UINT8, dims=[1, size])
    constant.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(size))):
        constant.external_data.add(key=key, value=value)
    nodes = [
        onnx.helper.make_node("Cast", ["bytes"], ["numbers"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("ReduceSum", ["windows"], ["sum"], keepdims=0),
        onnx.helper.make_node("Add", ["numbers", "sum"], ["logits"]),
    ]
    if where == "initializer":
        return small.model_of(nodes, size, [constant])
    node = onnx.helper.make_node("Constant", [], ["bytes"])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR, t=constant)
    return small.model_of([node, *nodes], size, [])


@pytest.mark.parametrize("where", ["initializer", "attribute"])
@pytest.mark.parametrize("named", ["token", "../token", "{outside}"])
def test_a_model_that_names_a_file_for_its_constants_reads_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, where: str
) -> None:
    """ONNX Runtime alone opens it, below the working directory or, up to 1.23, anywhere."""
    folder = tmp_path / "export"
    place = tmp_path / "place"
    folder.mkdir()
    place.mkdir()
    for each in (tmp_path, place):
        (each / "token").write_bytes(SECRET)
    monkeypatch.chdir(place)
    small.export(folder, reading(named.format(outside=tmp_path / "token"), where=where))
    refuses("names another file for its constants", open_model, folder)


@pytest.mark.parametrize(
    "content", [b"\x3a\xff", b"\x3b", b"\xff" * 20, b"\x3a\x05\x0a", b"\x39\x00"]
)
def test_damaged_bytes_are_no_model(content: bytes) -> None:
    with pytest.raises(ValueError, match="no model of ONNX"):
        refuse_other_files(content)


def test_graphs_within_graphs_have_an_end() -> None:
    content = b""
    for _ in range(2000):  # each a graph with a node with an attribute with a graph
        for key in (b"\x32", b"\x2a", b"\x0a"):
            content = key + varint(len(content)) + content
    with pytest.raises(ValueError, match="too deep"):
        refuse_other_files(b"\x3a" + varint(len(content)) + content)


def varint(number: int) -> bytes:
    groups = []
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])
