"""A small export: logits are the mean over time of each window times a matrix."""

import hashlib
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cluster.exported.description import (
    FILES,
    Check,
    Data,
    Description,
    Format,
    Input,
    Network,
    Output,
    Run,
    Standardization,
    Timing,
    write,
)

STEPS, CHANNELS, CLASSES = 8, 3, 2
KERNEL = np.arange(CHANNELS * CLASSES, dtype=np.float32).reshape(CHANNELS, CLASSES)


def answers(windows: np.ndarray) -> np.ndarray:
    found: np.ndarray = windows.mean(1) @ KERNEL
    return found


def onnx_model() -> bytes:
    windows = helper.make_tensor_value_info("windows", TensorProto.FLOAT, ["batch", STEPS, CHANNELS])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])
    constants = [numpy_helper.from_array(KERNEL, "kernel"), numpy_helper.from_array(np.array([1]), "axes")]
    nodes = [
        helper.make_node("ReduceMean", ["windows", "axes"], ["mean"], keepdims=0),
        helper.make_node("MatMul", ["mean", "kernel"], ["logits"]),
    ]
    graph = helper.make_graph(nodes, "small", [windows], [logits], constants)
    model: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()
    onnx.checker.check_model(model, full_check=True)
    return model


def described(content: bytes, kind: Format = "onnx") -> Description:
    return Description(
        format=kind,
        quantized=None,
        file=FILES[kind],
        sha256=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
        run=Run("20260101T000000Z-train", "train", "0" * 64, "0.1.0"),
        model=Network("small", {"hidden": 8}),
        input=Input("windows", "float32", STEPS, ("x", "y", "z"), "g", (STEPS, CHANNELS)),
        output=Output("logits", CLASSES),
        labels=("WALKING", "SITTING"),
        sampling_hz=50.0,
        stride=4,
        filters="two-way",
        standardization=Standardization((0.0,) * CHANNELS, (1.0,) * CHANNELS),
        check=Check(10, "the test set", 1e-6, 1.0, 0.9, 0.9),
        timing=Timing(0.1, 0.2, 1, 100),
        data=Data("hapt", "a zip", None),
    )


def export(folder: Path, content: bytes | None = None, kind: Format = "onnx") -> Description:
    content = onnx_model() if content is None else content
    description = described(content, kind)
    (folder / FILES[kind]).write_bytes(content)
    write(folder, description)
    return description
