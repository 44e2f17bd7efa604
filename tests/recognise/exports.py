"""An export for the tests: it tells moving from still by the mean of absolute body acceleration."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from core.data.filters import CHANNELS
from core.exported import write_description
from core.exported.description import Architecture, ChannelStatistics, Input
from tests.core.exported import small
from tests.lazy import onnx

STEPS = 128
THRESHOLD_G = 0.1
LABELS = ("STILL", "MOVING")


def onnx_model(channels: int = len(CHANNELS)) -> bytes:
    """Logits (0, 100 x (mean |body acceleration| - threshold)); dynamic batch."""
    windows = onnx.helper.make_tensor_value_info(
        "windows", onnx.TensorProto.FLOAT, ["batch", STEPS, channels]
    )
    logits = onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", 2])
    kernel = np.zeros((channels, 2), np.float32)
    kernel[:3, 1] = 100.0 / 3.0
    bias = np.array([0.0, -100.0 * THRESHOLD_G], np.float32)
    constants = [
        onnx.numpy_helper.from_array(kernel, "kernel"),
        onnx.numpy_helper.from_array(bias, "bias"),
        onnx.numpy_helper.from_array(np.array([1]), "axes"),
    ]
    nodes = [
        onnx.helper.make_node("Abs", ["windows"], ["absolute"]),
        onnx.helper.make_node("ReduceMean", ["absolute", "axes"], ["mean"], keepdims=0),
        onnx.helper.make_node("MatMul", ["mean", "kernel"], ["product"]),
        onnx.helper.make_node("Add", ["product", "bias"], ["logits"]),
    ]
    graph = onnx.helper.make_graph(nodes, "still or moving", [windows], [logits], constants)
    model: bytes = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()
    return model


def export(
    folder: Path,
    filters: str | None = "causal",
    channels: tuple[str, ...] = CHANNELS,
    **stated: Any,
) -> Path:
    """Write the export into `folder`, which it makes.

    `stated`: what it says of its signals, `width` of its windows.
    """
    folder.mkdir()
    width = stated.get("width", len(channels))
    content = onnx_model(width)
    (folder / "model.onnx").write_bytes(content)
    units = tuple(stated.get("units", ()))
    described = small.described(content)
    write_description(
        folder,
        replace(
            described,
            model=Architecture("still-or-moving", {}),
            input=Input(
                "windows",
                "float32",
                STEPS,
                tuple(channels),
                "g, rad/s",
                (STEPS, width),
                tuple(units),
            ),
            labels=LABELS,
            sampling_hz=stated.get("sampling_hz", 50.0),
            stride=64,
            filters=filters,  # type: ignore[arg-type]
            standardization=ChannelStatistics(
                (0.0,) * width, (stated.get("deviation", 1.0),) * width
            ),
        ),
    )
    return folder
