"""What silently goes wrong on the way to another runtime, each with its test."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.export.formats import litert_file, onnx_file
from cluster.export.graph import traced
from core.exported.verified import LARGEST_DIFFERENCE
from core.ground.errors import UsageError
from tests.cluster.export.models import SMALL, Case, case
from tests.cluster.export.test_app_networks import built
from tests.lazy import onnx
from tests.ran import python

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
    made = interpreter(written(expected))
    window = expected.windows[0]
    first = answer(made, window, reset=True)
    kept = answer(made, window, reset=False)
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
        largest = np.abs(expected.logits).max()
        return float(np.abs(np.array(found) - expected.logits).max() / largest)

    assert difference() < 1e-5
    monkeypatch.setattr(litert_file, "without_clips", lambda content: content)
    assert difference() > 1e-3


def test_weights_of_onnx_have_seven_bits(tmp_path: Path) -> None:
    case("residual").exported("onnx", tmp_path, quantized=True)
    model = onnx.load(tmp_path / "model.onnx")
    weights = [
        onnx.numpy_helper.to_array(each) for each in model.graph.initializer if each.data_type == 3
    ]
    whole = [each for each in weights if each.size > 1]
    assert len(whole) >= 2 * SMALL["residual"]["layers"]
    assert max(int(np.abs(each.astype(int)).max()) for each in whole) <= 64


OPENED_PLAINLY = """
import keras, numpy
from importlib.util import find_spec
assert not [name for name in ("cluster", "pscluster") if find_spec(name)]
found = keras.models.load_model("model.keras").predict(numpy.load("windows.npy"), verbose=0)
numpy.save("logits.npy", found)
"""


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_plain_keras_opens_the_file_and_predicts_the_same(tmp_path: Path, name: str) -> None:
    expected = case(name)
    expected.exported("keras", tmp_path)
    np.save(tmp_path / "windows.npy", expected.windows)
    environment = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    python("-c", OPENED_PLAINLY, folder=tmp_path, environment=environment)
    found = np.load(tmp_path / "logits.npy")
    np.testing.assert_allclose(found, expected.logits, rtol=0, atol=LARGEST_DIFFERENCE)
    np.testing.assert_array_equal(found.argmax(1), expected.logits.argmax(1))


def test_an_app_becomes_onnx_by_tf2onnx_and_says_when_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "find_spec", lambda module: None)
    model = built("dense").model
    with pytest.raises(
        UsageError, match=r"`pip install tf2onnx`, or use --to litert or savedmodel"
    ):
        onnx_file.OnnxFile.write(model, tmp_path / "model.onnx", quantized=False)
