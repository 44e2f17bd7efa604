"""Every built-in network in every format answers as TensorFlow does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.export.request import FORMATS
from core.exported.description import FILES
from core.inventory.extensions import MODELS
from tests.cluster.export.models import SMALL, case
from tests.tables import table


def test_every_network_is_exported_here_and_every_format_has_a_file() -> None:
    assert set(MODELS.names) == set(SMALL)
    assert list(FORMATS) == list(FILES)


QUICK = {"onnx": tuple(SMALL), "litert": ("residual",), "savedmodel": ("kth",), "keras": ("kth",)}
"""Conversions and Keras's loops take seconds each."""
EVERY = [(name, to) for to, names in QUICK.items() for name in names]


@pytest.mark.parametrize(("name", "to"), EVERY)
def test_an_export_answers_as_tensorflow_does(tmp_path: Path, name: str, to: str) -> None:
    case(name).answers_alike(to, tmp_path, apart=1e-2)


@pytest.mark.parametrize(
    ("name", "settings"),
    table("cluster/export/rows", "other settings"),
)
def test_the_other_settings_of_a_network_are_exported_too(
    tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    case(name, **settings).answers_alike("onnx", tmp_path)


@pytest.mark.parametrize("name", ["residual", "conv-lstm"])
def test_an_onnx_file_is_standard_nodes_with_one_lstm_a_layer(tmp_path: Path, name: str) -> None:
    graph = case(name).is_standard_onnx(tmp_path)
    assert sum(node.op_type == "LSTM" for node in graph.node) == 2


@pytest.mark.long
@pytest.mark.parametrize("to", ["onnx", "litert"])
@pytest.mark.parametrize("name", list(SMALL))
def test_int8_answers_nearly_the_same(tmp_path: Path, name: str, to: str) -> None:
    expected = case(name, scale=1.0)
    found = expected.exported(to, tmp_path, quantized=True)
    largest = max(1.0, float(np.abs(expected.logits).max()))
    np.testing.assert_allclose(found, expected.logits, rtol=0, atol=0.2 * largest)
