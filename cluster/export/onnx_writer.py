"""A model as an ONNX graph, node by node: standard operations alone, one `LSTM` node a layer, any batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cluster import __version__
from cluster.export.writer import Cell, Each, Floats, Over, Own, Tensor, Writer

OPSET, IR_VERSION = 18, 9
"""Of 2022 and 2023: what any ONNX Runtime since 1.15 reads."""

_EACH = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "minimum": "Min", "maximum": "Max"
}  # fmt: skip
_OWN = {"relu": "Relu", "absolute": "Abs", "sqrt": "Sqrt"}
_OVER = {"mean": "ReduceMean", "sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin"}


class OnnxWriter(Writer):
    """See Writer; a tensor is its name in the graph."""

    def __init__(self, input_name: str, steps: int, channels: int) -> None:
        self.windows = input_name
        self._shape: list[str | int | None] = ["batch", steps, channels]
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def model(self, answer: Tensor, output_name: str, classes: int) -> bytes:
        """The whole model, checked by ONNX's own checker with its inference of shapes."""
        self._nodes.append(helper.make_node("Identity", [answer], [output_name]))
        graph = helper.make_graph(
            self._nodes,
            "pscluster",
            [helper.make_tensor_value_info(self.windows, TensorProto.FLOAT, self._shape)],
            [helper.make_tensor_value_info(output_name, TensorProto.FLOAT, ["batch", classes])],
            self._constants,
        )
        made = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION,
            producer_name="pscluster", producer_version=__version__,
        )  # fmt: skip
        onnx.checker.check_model(made, full_check=True)
        content: bytes = made.SerializeToString()
        return content

    def _node(self, operation: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"{operation.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operation, list(inputs), [name], name=name, **attributes))
        return name

    def _constant(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(values, dtype), name))
        return name

    def _whole(self, *numbers: int) -> str:
        return self._constant(numbers, np.int64)

    def dense(self, inputs: Tensor, kernel: Floats, bias: Floats | None) -> Tensor:
        """See Writer."""
        product = self._node("MatMul", [inputs, self._constant(kernel)])
        return product if bias is None else self._node("Add", [product, self._constant(bias)])

    def lstm(self, inputs: Tensor, cells: Sequence[Cell]) -> Tensor:
        """See Writer. The outputs of a backward cell come in the order of the inputs, as ours do."""
        hidden, ways = cells[0].hidden, len(cells)
        biases = [np.concatenate([_gates(cell.bias), np.zeros_like(cell.bias)]) for cell in cells]
        only = "reverse" if cells[0].backward else "forward"
        stacked = self._node(
            "LSTM",
            [
                self._node("Transpose", [inputs], perm=[1, 0, 2]),
                self._constant(np.stack([_gates(cell.kernel).T for cell in cells])),
                self._constant(np.stack([_gates(cell.recurrent).T for cell in cells])),
                self._constant(np.stack(biases)),
            ],
            hidden_size=hidden,
            direction="bidirectional" if ways == 2 else only,
        )  # (steps, ways, batch, hidden)
        in_order = self._node("Transpose", [stacked], perm=[2, 0, 1, 3])
        return self._node("Reshape", [in_order, self._whole(0, 0, ways * hidden)])

    def convolution(self, inputs: Tensor, kernel: Floats, bias: Floats, stride: int) -> Tensor:
        """See Writer. `SAME_UPPER` puts the odd zero behind the end, as TensorFlow does."""
        found = self._node(
            "Conv",
            [
                self._node("Transpose", [inputs], perm=[0, 2, 1]),
                self._constant(kernel.transpose(2, 1, 0)),
                self._constant(bias),
            ],
            strides=[stride],
            auto_pad="SAME_UPPER",
        )
        return self._node("Transpose", [found], perm=[0, 2, 1])

    def layer_norm(self, inputs: Tensor, scale: Floats, shift: Floats, epsilon: float) -> Tensor:
        """See Writer."""
        operands = [inputs, self._constant(scale), self._constant(shift)]
        return self._node("LayerNormalization", operands, axis=-1, epsilon=epsilon)

    def each(self, operation: Each, first: Tensor, second: Tensor | Floats | float) -> Tensor:
        """See Writer."""
        other = second if isinstance(second, str) else self._constant(second)
        return self._node(_EACH[operation], [first, other])

    def own(self, operation: Own, inputs: Tensor) -> Tensor:
        """See Writer."""
        if operation == "square":
            return self._node("Mul", [inputs, inputs])
        if operation == "log1p":
            return self._log1p(inputs)
        return self._node(_OWN[operation], [inputs])

    def _log1p(self, inputs: Tensor) -> Tensor:
        """log(u) - (u - 1 - x) / u, u = 1 + x: ONNX has no log1p, and log(u) alone loses the digits of a small x."""
        more = self.each("add", inputs, 1.0)
        lost = self.each("subtract", self.each("subtract", more, 1.0), inputs)
        return self.each("subtract", self._node("Log", [more]), self.each("divide", lost, more))

    def over(self, operation: Over, inputs: Tensor, axis: int, *, kept: bool = False) -> Tensor:
        """See Writer."""
        return self._node(_OVER[operation], [inputs, self._whole(axis)], keepdims=int(kept))

    def cut(self, inputs: Tensor, axis: int, begin: int, end: int) -> Tensor:
        """See Writer."""
        return self._node("Slice", [inputs, self._whole(begin), self._whole(end), self._whole(axis)])

    def joined(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """See Writer."""
        return self._node("Concat", list(parts), axis=axis)

    def shaped(self, inputs: Tensor, shape: Sequence[int]) -> Tensor:
        """See Writer."""
        return self._node("Reshape", [inputs, self._whole(-1, *shape)])

    def turned(self, inputs: Tensor, order: Sequence[int]) -> Tensor:
        """See Writer."""
        return self._node("Transpose", [inputs], perm=list(order))


def _gates(values: Floats) -> Floats:
    """From our gates i, f, g, o along the last axis to ONNX's i, o, f, c."""
    i, f, g, o = np.split(values, 4, -1)
    return np.concatenate([i, o, f, g], -1)
