"""An export answers through ONNX Runtime or LiteRT, or says in one line why it cannot."""

import sys
from pathlib import Path

import numpy as np
import pytest

from cluster.errors import UsageError
from cluster.exported import open_model
from tests.exported import small


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small.export(tmp_path)
    return tmp_path


@pytest.fixture
def windows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(5, small.STEPS, small.CHANNELS)).astype(np.float32)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_windows_is_answered(folder: Path, windows: np.ndarray, count: int) -> None:
    found = open_model(folder).logits(windows[:count])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, small.answers(windows[:count]), rtol=1e-5, atol=1e-6)


def test_no_window_is_no_answer(folder: Path, windows: np.ndarray) -> None:
    assert open_model(folder).logits(windows[:0]).shape == (0, small.CLASSES)


@pytest.mark.parametrize("shape", [(small.STEPS, small.CHANNELS), (1, small.STEPS, 9), (1, 2, 3, 4)])
def test_another_shape_is_refused(folder: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected windows of shape"):
        open_model(folder).logits(np.zeros(shape, np.float32))


@pytest.mark.parametrize("kind", ["savedmodel", "keras"])
def test_what_needs_tensorflow_is_refused_with_the_remedy(tmp_path: Path, kind: str) -> None:
    small.export(tmp_path, b"any", kind)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"needs TensorFlow: export the run with --to onnx"):
        open_model(tmp_path)


@pytest.mark.parametrize(
    ("kind", "module", "package"),
    [("onnx", "onnxruntime", "onnxruntime"), ("litert", "ai_edge_litert.interpreter", "ai-edge-litert")],
)
def test_a_missing_package_is_named_with_the_command_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, module: str, package: str
) -> None:
    small.export(tmp_path, b"any", kind)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=f"`pip install {package}`"):
        open_model(tmp_path)


@pytest.mark.parametrize("kind", ["onnx", "litert"])
def test_a_model_that_is_none_is_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    small.export(tmp_path, b"no model at all", kind)  # type: ignore[arg-type]
    with pytest.raises(UsageError) as refused:
        open_model(tmp_path)
    assert "the runtime refuses it" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_model_of_other_names_is_refused(folder: Path) -> None:
    from dataclasses import replace

    from cluster.exported.description import read, write

    description = read(folder)
    write(folder, replace(description, input=replace(description.input, name="images")))
    with pytest.raises(UsageError, match=r"where export\.json says images"):
        open_model(folder)


def test_a_changed_model_is_refused(folder: Path) -> None:
    content = bytearray((folder / "model.onnx").read_bytes())
    content[-1] ^= 1
    (folder / "model.onnx").write_bytes(content)
    with pytest.raises(UsageError, match="another file than"):
        open_model(folder)
