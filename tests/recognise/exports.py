"""An export for the tests: it tells moving from still by the mean of absolute body acceleration."""

import hashlib
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from cluster.data.filters import CHANNELS
from cluster.exported import Description, write
from cluster.exported.description import Check, Data, Input, Network, Output, Run, Standardization, Timing

STEPS, THRESHOLD_G = 128, 0.1
LABELS = ("STILL", "MOVING")


def onnx_model(channels: int = len(CHANNELS)) -> bytes:
    """Logits (0, 100 x (mean |body acceleration| - threshold)); dynamic batch."""
    windows = helper.make_tensor_value_info("windows", TensorProto.FLOAT, ["batch", STEPS, channels])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 2])
    kernel = np.zeros((channels, 2), np.float32)
    kernel[:3, 1] = 100.0 / 3.0
    bias = np.array([0.0, -100.0 * THRESHOLD_G], np.float32)
    constants = [
        numpy_helper.from_array(kernel, "kernel"), numpy_helper.from_array(bias, "bias"),
        numpy_helper.from_array(np.array([1]), "axes"),
    ]  # fmt: skip
    nodes = [
        helper.make_node("Abs", ["windows"], ["absolute"]),
        helper.make_node("ReduceMean", ["absolute", "axes"], ["mean"], keepdims=0),
        helper.make_node("MatMul", ["mean", "kernel"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["logits"]),
    ]
    graph = helper.make_graph(nodes, "still or moving", [windows], [logits], constants)
    model: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()
    return model


def export(folder: Path, filters: str = "causal", channels: tuple[str, ...] = CHANNELS) -> Path:
    """Write the export into `folder`, which it makes."""
    folder.mkdir()
    content = onnx_model(len(channels))
    (folder / "model.onnx").write_bytes(content)
    write(
        folder,
        Description(
            format="onnx",
            quantized=None,
            file="model.onnx",
            sha256=hashlib.sha256(content).hexdigest(),
            bytes=len(content),
            run=Run("20260101T000000Z-train", "train", "0" * 64, "0.1.0"),
            model=Network("still-or-moving", {}),
            input=Input("windows", "float32", STEPS, channels, "g, rad/s", (STEPS, len(channels))),
            output=Output("logits", 2),
            labels=LABELS,
            sampling_hz=50.0,
            stride=64,
            filters=filters,  # type: ignore[arg-type]
            standardization=Standardization((0.0,) * len(channels), (1.0,) * len(channels)),
            check=Check(10, "the test set", 1e-6, 1.0, 0.9, 0.9),
            timing=Timing(0.1, 0.2, 1, 100),
            data=Data("hapt", "a zip", None),
        ),
    )
    return folder
