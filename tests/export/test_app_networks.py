"""Models of one's own in every format: of the examples, of the templates, of Keras's applications, of all layers."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import cluster.engine.runtime  # noqa: F401  (its options decide how graphs are optimized)
from cluster.apps.app import App, load
from cluster.apps.networks import Kind, network_of
from cluster.errors import UsageError
from cluster.export.formats.format import FORMATS, ExportRefused
from cluster.export.formats.onnx_file import OnnxFile
from cluster.export.graph import traced
from cluster.exported.description import FILES
from cluster.exported.verified import LARGEST_DIFFERENCE
from cluster.jobs.train_result import StoredModel
from deploy.common.project import ROOT
from tests.apps.test_keras_networks import SEED
from tests.apps.zoo import MODELS, POSITIONS
from tests.export.models import Case
from worker_node.recordings import Standardization

import keras  # isort: skip

OUTPUTS, EXAMPLES = 4, 8
NOTHING = np.empty(0, np.float32)


def mobile_net(input_shape: tuple[int, ...], outputs: int) -> Any:
    """MobileNetV2 with a head of our own: depthwise convolutions, batch normalization, ReLU6, residuals.

    Its statistics are those of random images: with the initial ones every image has the same answer.
    """
    body = keras.applications.MobileNetV2(input_shape, weights=None, include_top=False, pooling="avg", alpha=0.35)
    for layer in body.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    body(np.random.default_rng(2).normal(size=(16, *input_shape)).astype(np.float32), training=True)
    head = keras.layers.Dense(outputs, kernel_initializer=keras.initializers.RandomNormal(stddev=0.01))
    return keras.Sequential([keras.Input(input_shape), body, head])


def of(app: App, kind: Kind, inputs: Any, standardization: Standardization) -> Case:
    """The app's model with parameters and statistics other than the initial ones."""
    network = network_of(app, kind, SEED)
    vector = network.initial(SEED)
    random, trained = np.random.default_rng(1), network.layout.trained_size
    vector[:trained] += random.normal(0, 0.02, trained).astype(np.float32)
    vector[trained:] *= random.uniform(0.9, 1.1, len(vector) - trained).astype(np.float32)
    model = StoredModel(network, vector, standardization, tuple("abcd"))
    return Case(model, inputs, np.asarray(traced(model)(inputs)))


@cache
def built(name: str) -> Case:
    """Of a function that makes a Keras model."""
    make, shape, dtype = (mobile_net, (32, 32, 3), "float32") if name == "mobile-net" else MODELS[name]
    random = np.random.default_rng(0)
    inputs = (
        random.normal(size=(EXAMPLES, *shape)) if dtype == "float32" else random.integers(0, 16, (EXAMPLES, *shape))
    )
    kind = Kind("classification", OUTPUTS, shape, dtype, POSITIONS.get(name, ()), "int32")
    app = App(name, Path(f"{name}.py"), None, {"model": make})
    return of(app, kind, inputs.astype(dtype), Standardization(NOTHING, NOTHING))


@cache
def shipped(place: str) -> Case:
    """Of a folder with an app.py; its own test examples, or standardized windows where it has no data()."""
    app = load(ROOT / place)
    if not app.has("data"):
        random = np.random.default_rng(0)
        windows = random.normal(1, 2, (EXAMPLES, 128, 9)).astype(np.float32)
        standardization = Standardization(np.full(9, 1, np.float32), np.full(9, 2, np.float32))
        return of(app, Kind("classification", 6, (128, 9), "float32", (), "int32"), windows, standardization)
    data = app.call("data", ROOT / place)
    inputs = np.asarray(data["x_test"])[:EXAMPLES]
    inputs = inputs.astype({"float64": "float32", "int64": "int32"}.get(inputs.dtype.name, inputs.dtype.name))
    task = app.task or "classification"
    classes = len(data.get("labels", np.unique(data["y_train"])))
    outputs = classes if task == "classification" else 1
    kind = Kind(
        task, outputs, inputs.shape[1:], inputs.dtype.name, (), "int32" if task == "classification" else "float32"
    )
    return of(app, kind, inputs, Standardization(NOTHING, NOTHING))


PLACES = sorted(
    str(file.parent.relative_to(ROOT))
    for pattern in ("examples/*/app.py", "deploy/apps/templates/*/app.py")
    for file in ROOT.glob(pattern)
)
CASES: dict[str, Callable[[], Case]] = {place: lambda place=place: shipped(place) for place in PLACES}  # type: ignore[misc]
CASES |= {name: lambda name=name: built(name) for name in (*MODELS, "mobile-net")}  # type: ignore[misc]
UNABLE = {
    ("mixed", "onnx"): (ExportRefused, "computes in bfloat16"),
    ("mixed", "litert"): (ExportRefused, "computes in bfloat16"),
    ("transformer", "keras"): (ExportRefused, "register_keras_serializable"),
    ("examples/bare", "keras"): (UsageError, "is no Keras model: use --to savedmodel"),
    ("deploy/apps/templates/bare", "keras"): (UsageError, "is no Keras model: use --to savedmodel"),
}
"""What cannot be, and what is said then."""
QUICK = {("windows", "onnx"), ("examples/tabular", "onnx"), ("images", "onnx"), ("mixed", "onnx")}
EACH = [
    pytest.param(name, to, marks=() if (name, to) in QUICK else pytest.mark.long)
    for name in CASES for to in FILES if not (name == "tags" and to in ("onnx", "litert"))
]  # fmt: skip


def test_the_examples_and_the_templates_are_all_there() -> None:
    assert len(PLACES) >= 11
    assert {"examples/digits", "examples/transformer", "deploy/apps/templates/keras"} <= set(PLACES)


@pytest.mark.parametrize(("name", "to"), EACH)
def test_a_model_of_one_s_own_answers_as_tensorflow_does(tmp_path: Path, name: str, to: str) -> None:
    expected = CASES[name]()
    assert np.ptp(expected.logits, 0).max() > 1e-3  # the examples are told apart
    if (name, to) in UNABLE:
        error, said = UNABLE[name, to]
        with pytest.raises(error, match=said):
            expected.exported(to, tmp_path)
        return
    found = expected.exported(to, tmp_path)
    assert found.shape == expected.logits.shape
    np.testing.assert_allclose(found, expected.logits, rtol=0, atol=LARGEST_DIFFERENCE)
    np.testing.assert_array_equal(found.argmax(-1), expected.logits.argmax(-1))


def test_an_app_s_onnx_file_is_standard_nodes_of_one_input_and_any_batch(tmp_path: Path) -> None:
    expected = built("frozen")  # Keras's own exporter makes inputs of the constants of its Normalization
    FORMATS["onnx"].write(expected.model, tmp_path / "model.onnx", quantized=False)
    model = onnx.load(tmp_path / "model.onnx")
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    (taken,), (answered,) = model.graph.input, model.graph.output
    assert (taken.name, answered.name) == ("windows", "logits")
    assert [size.dim_param or size.dim_value for size in taken.type.tensor_type.shape.dim] == ["batch", 12]
    answers = expected.opened("onnx", tmp_path / "model.onnx")
    for size in (1, 3):
        np.testing.assert_allclose(
            answers(expected.windows[:size]), expected.logits[:size], rtol=0, atol=LARGEST_DIFFERENCE
        )


def test_an_app_s_onnx_file_can_have_int8_weights(tmp_path: Path) -> None:
    expected = built("windows")
    found = expected.exported("onnx", tmp_path, quantized=True)
    kinds = {each.data_type for each in onnx.load(tmp_path / "model.onnx").graph.initializer}
    assert onnx.TensorProto.INT8 in kinds
    assert 0 < np.abs(found - expected.logits).max() < 0.1 * np.ptp(expected.logits)


def test_the_writer_says_nothing_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    expected = built("dense")
    capfd.readouterr()
    OnnxFile.write(expected.model, tmp_path / "model.onnx", quantized=False)
    said = [line for line in capfd.readouterr().err.splitlines() if not line.startswith(("I0000", "E0000", "W0000"))]
    assert said == []
