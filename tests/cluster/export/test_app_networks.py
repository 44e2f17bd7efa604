"""Models of apps as exports, of layers of many kinds."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.apps.app import App, load
from cluster.apps.app_network import Kind
from cluster.apps.networks import network_of
from cluster.export.formats.onnx_file import OnnxFile
from cluster.export.graph import traced
from cluster.export.request import ExportRefused
from cluster.jobs.train_result import StoredModel
from core.ground.errors import UsageError
from core.ground.lazy import keras
from deploy.common.project import ROOT
from tests.cluster.apps.kit import SEED, app_of
from tests.cluster.apps.looping import LOOPING
from tests.cluster.apps.zoo import MODELS, examples, kind_of
from tests.cluster.export.models import Case
from tests.lazy import onnx
from tests.tables import table
from worker_node.recordings import Standardization

EXAMPLES = 8
NOTHING = np.empty(0, np.float32)


def spectrum(input_shape: tuple[int, ...], outputs: int) -> Any:
    """A transform whose length is no power of two, which LiteRT's runtime asks for."""
    real = keras.layers.Lambda(lambda x: keras.ops.rfft(x)[0])
    return keras.Sequential([keras.Input(input_shape), real, keras.layers.Dense(outputs)])


def of(app: App, kind: Kind, inputs: Any) -> Case:
    """The app's model with parameters and statistics other than the initial ones."""
    network = network_of(app, kind, SEED)
    trained, statistics = np.split(network.initial(SEED), [network.layout.trained_size])
    random = np.random.default_rng(1)
    moved = trained + random.normal(0, 0.02, len(trained))
    scaled = statistics * random.uniform(0.9, 1.1, len(statistics))
    vector = np.concatenate([moved, scaled]).astype(np.float32)
    model = StoredModel(network, vector, Standardization(NOTHING, NOTHING), tuple("abcd"))
    return Case(model, inputs, np.asarray(traced(model)(inputs)))


@cache
def built(name: str) -> Case:
    """Of a function that makes a Keras model."""
    entry = {**MODELS, **LOOPING, "spectrum": (spectrum, (6,), "float32")}[name]
    kind = kind_of(entry)
    inputs = examples(kind, np.random.default_rng(0), EXAMPLES)
    return of(app_of(model=entry[0]), kind, inputs)


def test_a_model_of_one_s_own_answers_as_tensorflow_does(tmp_path: Path) -> None:
    built("images").answers_alike("onnx", tmp_path)


@pytest.mark.parametrize(
    ("name", "to", "said"),
    table("cluster/export/rows", "refused models"),
)
def test_a_model_that_a_format_cannot_have_is_refused(
    tmp_path: Path, name: str, to: str, said: str
) -> None:
    with pytest.raises(ExportRefused, match=said):
        built(name).exported(to, tmp_path)


def test_an_app_without_keras_has_no_keras_file(tmp_path: Path) -> None:
    kind = Kind("classification", 3, (3,), "float32", (), "int32")
    bare = of(load(ROOT / "examples/bare"), kind, np.zeros((EXAMPLES, 3), np.float32))
    with pytest.raises(UsageError, match="is no Keras model: use --to savedmodel"):
        bare.exported("keras", tmp_path)


def test_an_app_s_onnx_file_is_standard_nodes_of_one_input_and_any_batch(tmp_path: Path) -> None:
    # Keras's own exporter makes inputs of the constants of its Normalization.
    built("frozen").is_standard_onnx(tmp_path)


def test_an_app_s_onnx_file_can_have_int8_weights(tmp_path: Path) -> None:
    expected = built("subclassed")
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
