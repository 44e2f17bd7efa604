"""Models of apps in every format: of examples, templates, Keras's applications, all layers."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from cluster.apps.app import App, load
from cluster.apps.app_network import Kind
from cluster.apps.networks import network_of
from cluster.export.formats.format import ExportRefused
from cluster.export.formats.onnx_file import OnnxFile
from cluster.export.graph import traced
from cluster.jobs.train_result import StoredModel
from core.errors import UsageError
from core.exported.description import FILES
from deploy.common.project import ROOT
from tests.cluster.apps.kit import SEED, app_of
from tests.cluster.apps.zoo import MODELS, examples, kind_of
from tests.cluster.export.models import Case
from worker_node.recordings import Standardization

import keras  # isort: skip

EXAMPLES = 8
NOTHING = np.empty(0, np.float32)


def mobile_net(input_shape: tuple[int, ...], outputs: int) -> Any:
    """MobileNetV2 with a head of our own: depthwise convolutions, batch norm, residuals.

    Its statistics are those of random images: with the initial ones every image has the same
    answer.
    """
    body = keras.applications.MobileNetV2(
        input_shape, weights=None, include_top=False, pooling="avg", alpha=0.35
    )
    for layer in body.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    body(np.random.default_rng(2).normal(size=(16, *input_shape)).astype(np.float32), training=True)
    head = keras.layers.Dense(
        outputs, kernel_initializer=keras.initializers.RandomNormal(stddev=0.01)
    )
    return keras.Sequential([keras.Input(input_shape), body, head])


def spectrum(input_shape: tuple[int, ...], outputs: int) -> Any:
    """A transform whose length is no power of two, which LiteRT's runtime asks for."""
    real = keras.layers.Lambda(lambda x: keras.ops.rfft(x)[0])
    return keras.Sequential([keras.Input(input_shape), real, keras.layers.Dense(outputs)])


def of(app: App, kind: Kind, inputs: Any, standardization: Standardization) -> Case:
    """The app's model with parameters and statistics other than the initial ones."""
    network = network_of(app, kind, SEED)
    trained, statistics = np.split(network.initial(SEED), [network.layout.trained_size])
    random = np.random.default_rng(1)
    moved = trained + random.normal(0, 0.02, len(trained))
    scaled = statistics * random.uniform(0.9, 1.1, len(statistics))
    vector = np.concatenate([moved, scaled]).astype(np.float32)
    model = StoredModel(network, vector, standardization, tuple("abcd"))
    return Case(model, inputs, np.asarray(traced(model)(inputs)))


@cache
def built(name: str) -> Case:
    """Of a function that makes a Keras model."""
    own = {
        "mobile-net": (mobile_net, (32, 32, 3), "float32"),
        "spectrum": (spectrum, (6,), "float32"),
    }
    entry = {**MODELS, **own}[name]
    kind = kind_of(entry)
    inputs = examples(kind, np.random.default_rng(0), EXAMPLES)
    return of(app_of(model=entry[0]), kind, inputs, Standardization(NOTHING, NOTHING))


@cache
def shipped(place: str) -> Case:
    """The app of a folder, with its own test examples or standardized windows."""
    app = load(ROOT / place)
    task = app.task or "classification"
    standardization = Standardization(NOTHING, NOTHING)
    if app.has("data"):
        data = app.call("data", ROOT / place)
        inputs = np.asarray(data["x_test"])[:EXAMPLES]
        dtype = inputs.dtype.name
        inputs = inputs.astype({"float64": "float32", "int64": "int32"}.get(dtype, dtype))
        outputs = len(data.get("labels", np.unique(data["y_train"])))
    else:
        inputs = np.random.default_rng(0).normal(1, 2, (EXAMPLES, 128, 9)).astype(np.float32)
        standardization = Standardization(np.full(9, 1, np.float32), np.full(9, 2, np.float32))
        outputs = 6
    if task == "classification":
        targets = "int32"
    else:
        outputs, targets = 1, "float32"
    kind = Kind(task, outputs, inputs.shape[1:], inputs.dtype.name, (), targets)
    return of(app, kind, inputs, standardization)


PLACES = sorted(
    str(file.parent.relative_to(ROOT))
    for pattern in ("examples/*/app.py", "deploy/apps/templates/*/app.py")
    for file in ROOT.glob(pattern)
)
CASES: dict[str, Callable[[], Case]] = {place: partial(shipped, place) for place in PLACES}
CASES |= {name: partial(built, name) for name in (*MODELS, "mobile-net")}
CASES["spectrum"] = partial(built, "spectrum")
UNABLE = {
    ("spectrum", "litert"): (ExportRefused, "LiteRT cannot use what its converter wrote"),
    ("mixed", "onnx"): (ExportRefused, "computes in bfloat16"),
    ("mixed", "litert"): (ExportRefused, "computes in bfloat16"),
    ("transformer", "keras"): (ExportRefused, "register_keras_serializable"),
    ("examples/bare", "keras"): (UsageError, "is no Keras model: use --to savedmodel"),
}
"""What cannot be, and what is said then."""
QUICK = {
    ("spectrum", "litert"),
    ("windows", "onnx"),
    ("examples/tabular", "onnx"),
    ("images", "onnx"),
    ("mixed", "onnx"),
}
EACH = [
    pytest.param(name, to, marks=() if (name, to) in QUICK else pytest.mark.long)
    for name in CASES
    for to in FILES
    if not (name == "tags" and to in ("onnx", "litert"))
    and not (name == "spectrum" and to in ("onnx", "keras"))
]


def test_the_examples_and_the_templates_are_all_there() -> None:
    assert len(PLACES) >= 8
    assert {"examples/digits", "examples/transformer", "deploy/apps/templates/keras"} <= set(PLACES)


@pytest.mark.parametrize(("name", "to"), EACH)
def test_a_model_of_one_s_own_answers_as_tensorflow_does(
    tmp_path: Path, name: str, to: str
) -> None:
    expected = CASES[name]()
    if (name, to) in UNABLE:
        error, said = UNABLE[name, to]
        with pytest.raises(error, match=said):
            expected.exported(to, tmp_path)
    else:
        expected.answers_alike(to, tmp_path)


def test_an_app_s_onnx_file_is_standard_nodes_of_one_input_and_any_batch(tmp_path: Path) -> None:
    # Keras's own exporter makes inputs of the constants of its Normalization.
    built("frozen").is_standard_onnx(tmp_path)


def test_an_app_s_onnx_file_can_have_int8_weights(tmp_path: Path) -> None:
    expected = built("windows")
    found = expected.exported("onnx", tmp_path, quantized=True)
    kinds = {each.data_type for each in onnx.load(tmp_path / "model.onnx").graph.initializer}
    assert onnx.TensorProto.INT8 in kinds
    assert 0 < np.abs(found - expected.logits).max() < 0.1 * np.ptp(expected.logits)


def test_the_writer_says_nothing_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = built("dense")
    capfd.readouterr()
    OnnxFile.write(expected.model, tmp_path / "model.onnx", quantized=False)
    said = capfd.readouterr().err.splitlines()
    assert [line for line in said if not line.startswith(("I0000", "E0000", "W0000"))] == []
