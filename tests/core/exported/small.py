"""A small export: logits are the mean over time of each window times a matrix."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from core.exported.description import (
    FILES,
    Architecture,
    ChannelStatistics,
    Check,
    Description,
    Format,
    Input,
    Latency,
    Logits,
    Provenance,
    TrainingSet,
    write_description,
)
from tests.lazy import onnx

STEPS = 8
CHANNELS = 3
CLASSES = 2
KERNEL = np.arange(CHANNELS * CLASSES, dtype=np.float32).reshape(CHANNELS, CLASSES)


def answers(windows: np.ndarray) -> np.ndarray:
    found: np.ndarray = windows.mean(1) @ KERNEL
    return found


def model_of(
    nodes: "list[onnx.NodeProto]", classes: int, constants: "Sequence[onnx.TensorProto]"
) -> bytes:
    """The model `windows` -> `logits` of these nodes."""
    shapes: dict[str, list[str | int]] = {
        "windows": ["batch", STEPS, CHANNELS],
        "logits": ["batch", classes],
    }
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    graph = onnx.helper.make_graph(nodes, "small", ends[:1], ends[1:], constants)
    opsets = [onnx.helper.make_opsetid("", 18)]
    made: bytes = onnx.helper.make_model(
        graph, opset_imports=opsets, ir_version=9
    ).SerializeToString()
    return made


def onnx_model() -> bytes:
    constants = {"kernel": KERNEL, "axes": np.array([1])}
    nodes = [
        onnx.helper.make_node("ReduceMean", ["windows", "axes"], ["mean"], keepdims=0),
        onnx.helper.make_node("MatMul", ["mean", "kernel"], ["logits"]),
    ]
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    model = model_of(nodes, CLASSES, tensors)
    onnx.checker.check_model(model, full_check=True)
    return model


def described(content: bytes, kind: Format = "onnx") -> Description:
    return Description(
        format=kind,
        quantized=None,
        file=FILES[kind],
        sha256=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
        run=Provenance("20260101T000000Z-train", "train", "0" * 64, "0.1.0"),
        model=Architecture("small", {"hidden": 8}),
        input=Input("windows", "float32", STEPS, ("x", "y", "z"), "g", (STEPS, CHANNELS)),
        output=Logits("logits", CLASSES),
        labels=("WALKING", "SITTING"),
        sampling_hz=50.0,
        stride=4,
        filters="two-way",
        standardization=ChannelStatistics((0.0,) * CHANNELS, (1.0,) * CHANNELS),
        check=Check(10, "the test set", 1e-6, 1.0, 0.9, 0.9),
        timing=Latency(0.1, 0.2, 1, 100),
        data=TrainingSet("hapt", "a zip", None),
    )


def export(folder: Path, content: bytes | None = None, kind: Format = "onnx") -> Description:
    content = onnx_model() if content is None else content
    description = described(content, kind)
    (folder / FILES[kind]).write_bytes(content)
    write_description(folder, description)
    return description
