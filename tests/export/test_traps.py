"""What silently goes wrong on the way to another runtime, each with a test that fails where we fall into it."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from cluster.errors import UsageError
from cluster.export.formats import litert_file, onnx_file
from cluster.export.graph import traced
from cluster.exported.verified import LARGEST_DIFFERENCE
from cluster.jobs.train_result import StoredModel
from tests.apps.test_keras_networks import SEED, network
from tests.export.models import SMALL, Case, case
from worker_node.recordings import Standardization

runtime: Any = import_module("ai_edge_litert.interpreter")


def interpreter(content: bytes) -> Any:
    made = runtime.Interpreter(model_content=content, num_threads=1)
    made.allocate_tensors()
    return made


def answer(made: Any, window: np.ndarray, *, reset: bool) -> np.ndarray:
    made.set_tensor(made.get_input_details()[0]["index"], window[None])
    if reset:
        made.reset_all_variables()
    made.invoke()
    found: np.ndarray = made.get_tensor(made.get_output_details()[0]["index"])[0]
    return found


def written(expected: Case) -> bytes:
    function = traced(expected.model, batch=1, lstm=litert_file.fusing_lstm())
    return litert_file.converted(function, quantized=False)


def test_every_lstm_of_litert_is_one_fused_operation_and_nothing_needs_flex() -> None:
    names = [each["op_name"] for each in interpreter(written(case("residual")))._get_ops_details()]
    assert names.count("UNIDIRECTIONAL_SEQUENCE_LSTM") == 2 * SMALL["residual"]["layers"]
    assert not [name for name in names if name in ("WHILE", "IF", "CUSTOM") or "Flex" in name]


def test_a_fused_lstm_keeps_its_state_and_the_room_of_exports_resets_it(tmp_path: Path) -> None:
    expected = case("kth")
    made, window = interpreter(written(expected)), expected.windows[0]
    first, kept = answer(made, window, reset=True), answer(made, window, reset=False)
    assert np.abs(kept - first).max() > 1e-3
    np.testing.assert_array_equal(answer(made, window, reset=True), first)
    found = expected.exported("litert", tmp_path)
    opened = expected.opened("litert", tmp_path / "model.tflite")
    np.testing.assert_array_equal(opened(expected.windows[::-1])[::-1], found)
    np.testing.assert_array_equal(opened(expected.windows), found)


def test_the_converter_clips_cells_at_ten_and_we_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = case("kth", scale=12.0)

    def difference() -> float:
        made = interpreter(written(expected))
        found = [answer(made, window, reset=True) for window in expected.windows]
        return float(np.abs(np.array(found) - expected.logits).max() / np.abs(expected.logits).max())

    assert difference() < 1e-5
    monkeypatch.setattr(litert_file, "without_clips", lambda content: content)
    assert difference() > 1e-3


def test_weights_of_onnx_have_seven_bits(tmp_path: Path) -> None:
    case("residual").exported("onnx", tmp_path, quantized=True)
    model = onnx.load(tmp_path / "model.onnx")
    weights = [onnx.numpy_helper.to_array(each) for each in model.graph.initializer if each.data_type == 3]
    whole = [each for each in weights if each.size > 1]
    assert len(whole) >= 2 * SMALL["residual"]["layers"]
    assert max(int(np.abs(each.astype(int)).max()) for each in whole) <= 64


OPENED_PLAINLY = """
import sys
from importlib import import_module
import keras, numpy
assert not [name for name in ("cluster", "pscluster") if __import__("importlib.util").util.find_spec(name)]
found = keras.models.load_model(sys.argv[1]).predict(numpy.load(sys.argv[2]), verbose=0)
numpy.save(sys.argv[3], found)
"""


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_plain_keras_opens_the_file_and_predicts_the_same(tmp_path: Path, name: str) -> None:
    expected = case(name)
    expected.exported("keras", tmp_path)
    np.save(tmp_path / "windows.npy", expected.windows)
    words = [sys.executable, "-c", OPENED_PLAINLY, "model.keras", "windows.npy", "logits.npy"]
    subprocess.run(words, cwd=tmp_path, check=True, env={"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"})
    found = np.load(tmp_path / "logits.npy")
    np.testing.assert_allclose(found, expected.logits, rtol=0, atol=LARGEST_DIFFERENCE)
    np.testing.assert_array_equal(found.argmax(1), expected.logits.argmax(1))


@pytest.mark.long
@pytest.mark.parametrize("to", ["onnx", "litert", "savedmodel", "keras"])
def test_an_app_s_keras_model_keeps_its_weights(tmp_path: Path, to: str) -> None:
    app = network("windows")
    shape = app.problem.input_shape
    standardization = Standardization(np.full(shape[-1], 0.5, np.float32), np.full(shape[-1], 2.0, np.float32))
    model = StoredModel(app, app.initial(SEED), standardization, tuple("abcd"))
    windows = np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32)
    expected = Case(model, windows, np.asarray(traced(model)(windows)))
    assert np.ptp(expected.logits, 0).max() > 1e-3
    np.testing.assert_allclose(expected.exported(to, tmp_path), expected.logits, rtol=0, atol=LARGEST_DIFFERENCE)


def test_an_app_becomes_onnx_by_tf2onnx_and_says_when_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "find_spec", lambda module: None)
    app = network("windows")
    model = StoredModel(
        app, app.initial(SEED), Standardization(np.empty(0, np.float32), np.empty(0, np.float32)), tuple("abcd")
    )
    with pytest.raises(UsageError, match=r"`pip install tf2onnx`, or use --to litert or savedmodel"):
        onnx_file.OnnxFile.write(model, tmp_path / "model.onnx", quantized=False)
