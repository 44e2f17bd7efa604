"""Exports that are right for most windows, and end or hold what computes them for others."""

from pathlib import Path

import numpy as np

from core.exported.description import FILES, write_description
from tests.core.exported import small
from tests.lazy import onnx

POISON = 1e6
"""Windows whose sum is greater than it."""
ENDLESS = 2**62


def _written(folder: Path, nodes: "list[onnx.NodeProto]", above: float, amount: int) -> Path:
    """An export whose logits are those of the small one, plus `extra`, a float."""
    make = onnx.helper.make_node
    head = [
        make("Abs", ["windows"], ["absolute"]),
        make("ReduceSum", ["absolute"], ["sum"], keepdims=0),
        make("Greater", ["sum", "above"], ["is_poison"]),
        make("Cast", ["is_poison"], ["one"], to=onnx.TensorProto.INT64),
        make("Mul", ["one", "most"], ["amount"]),
    ]
    tail = [
        make("ReduceMean", ["windows", "axes"], ["mean"], keepdims=0),
        make("MatMul", ["mean", "kernel"], ["plain"]),
        make("Mul", ["extra", "zero"], ["nothing"]),
        make("Add", ["plain", "nothing"], ["logits"]),
    ]
    scalars = {
        "above": np.float32(above),
        "most": np.int64(amount),
        "zero": np.float32(0),
        "yes": np.bool_(True),
    }
    constants = {"kernel": small.KERNEL, "axes": np.array([1]), **scalars}
    tensors = [
        onnx.numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items()
    ]
    content = small.model_of([*head, *nodes, *tail], small.CLASSES, tensors)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILES["onnx"]).write_bytes(content)
    write_description(folder, small.described(content))
    return folder


def endless(folder: Path, above: float = POISON) -> Path:
    """It never answers windows with a greater sum than `above`."""
    kinds = {"turn": 7, "goes_on": 9, "before": 1, "still": 9, "after": 1}  # of TensorProto
    ends = [onnx.helper.make_tensor_value_info(name, kind, []) for name, kind in kinds.items()]
    body = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Identity", ["goes_on"], ["still"]),
            onnx.helper.make_node("Sin", ["before"], ["after"]),
        ],
        "turn",
        ends[:3],
        ends[3:],
    )
    loop = onnx.helper.make_node("Loop", ["amount", "yes", "sum"], ["extra"], body=body)
    return _written(folder, [loop], above, ENDLESS)


def greedy(folder: Path, megabytes: int, above: float = POISON) -> Path:
    """It takes so many megabytes for windows with a greater sum than `above`."""
    make = onnx.helper.make_node
    nodes = [
        make("Constant", [], ["first"], value_ints=[0]),
        make("Unsqueeze", ["amount", "first"], ["length"]),
        make("ConstantOfShape", ["length"], ["many"]),
        make("ReduceSum", ["many"], ["extra"], keepdims=0),
    ]
    return _written(folder, nodes, above, megabytes << 18)
