"""Every built-in network in every format answers as TensorFlow does."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from cluster.errors import UsageError
from cluster.export.formats.format import FORMATS
from cluster.export.networks.writing import NETWORKS
from cluster.exported.description import FILES
from cluster.exported.verified import LARGEST_DIFFERENCE
from cluster.inventory.extensions import MODELS
from tests.export.models import CHANNELS, SMALL, STEPS, case


def test_every_network_has_an_export_and_every_format_a_file() -> None:
    assert set(NETWORKS) == set(MODELS.names) == set(SMALL)
    assert list(FORMATS) == list(FILES)


QUICK = {"onnx": tuple(SMALL), "litert": ("residual",), "savedmodel": ("kth",), "keras": ("kth",)}
"""Conversions and Keras's loops take seconds each: the others are tested where time is."""
EVERY = [
    pytest.param(name, to, marks=() if name in QUICK[to] else pytest.mark.long) for to in FILES for name in SMALL
]  # fmt: skip


@pytest.mark.parametrize(("name", "to"), EVERY)
def test_an_export_answers_as_tensorflow_does(tmp_path: Path, name: str, to: str) -> None:
    expected = case(name)
    found = expected.exported(to, tmp_path)
    assert np.ptp(expected.logits, 0).max() > 1e-2  # the windows are told apart
    np.testing.assert_allclose(found, expected.logits, rtol=0, atol=LARGEST_DIFFERENCE)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("thesis", {"bidirectional": True, "n_layers_in_highway": 2, "batch_norm": True, "instance_norm": "append"}),
        ("residual", {"instance_norm": "replace"}),
        ("dblstm", {"layers": 1}),
        ("dblstm", {"layers": 2, "instance_norm": "append"}),
        ("hybrid", {"body": "residual", "instance_norm": "replace"}),
        ("spectral", {"hidden": 0}),
        ("spectral", {"channels": 4}),
        ("spectral", {"channels": 1}),
    ],
)
@pytest.mark.parametrize("to", ["onnx", pytest.param("keras", marks=pytest.mark.long)])
def test_the_other_settings_of_a_network_are_exported_too(
    tmp_path: Path, name: str, settings: dict[str, Any], to: str
) -> None:
    expected = case(name, **settings)
    found = expected.exported(to, tmp_path)
    np.testing.assert_allclose(found, expected.logits, rtol=0, atol=LARGEST_DIFFERENCE)


def test_an_onnx_file_is_standard_nodes_with_one_lstm_a_layer(tmp_path: Path) -> None:
    expected = case("residual")
    expected.exported("onnx", tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    assert {node.domain for node in model.graph.node} == {""}
    assert sum(node.op_type == "LSTM" for node in model.graph.node) == SMALL["residual"]["layers"]
    (taken,), (answered,) = model.graph.input, model.graph.output
    assert (taken.name, answered.name) == ("windows", "logits")
    sizes = [size.dim_param or size.dim_value for size in taken.type.tensor_type.shape.dim]
    assert sizes == ["batch", STEPS, CHANNELS]


def test_a_batch_of_any_size_has_the_same_answers(tmp_path: Path) -> None:
    expected = case("conv-lstm")
    FORMATS["onnx"].write(expected.model, tmp_path / "model.onnx", quantized=False)
    answers = expected.opened("onnx", tmp_path / "model.onnx")
    for size in (1, 2, 5):
        found = answers(expected.windows[:size])
        np.testing.assert_allclose(found, expected.logits[:size], rtol=0, atol=LARGEST_DIFFERENCE)


@pytest.mark.long
@pytest.mark.parametrize("name", list(SMALL))
def test_int8_answers_nearly_the_same(tmp_path: Path, name: str) -> None:
    expected = case(name, scale=1.0)
    for to in ("onnx", "litert"):
        found = expected.exported(to, tmp_path, quantized=True)
        assert np.abs(found - expected.logits).max() < 0.2 * max(1.0, float(np.abs(expected.logits).max())), to


def test_a_network_without_an_export_is_named() -> None:
    with pytest.raises(UsageError, match="unknown network with an export 'statistics'"):
        NETWORKS["statistics"]
