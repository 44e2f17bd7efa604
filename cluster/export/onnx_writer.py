"""A model as an ONNX graph: a network of ours of standard nodes, any other function by tf2onnx.

Ours has one `LSTM` node a layer, for any batch. Keras's `export(format="onnx")` cannot be used as
it is: it leaves constants that a layer captured, such as those of `Normalization`, as further
inputs of the file, and names its answer after TensorFlow's node. So a traced function gets its
constants first, as for LiteRT; that takes any app, with and without Keras.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cluster.export.graph import INPUT, OUTPUT, STEPS, Writer
from cluster.export.request import ExportRefused, refuse_halves
from core import __version__
from core.ground.errors import reason_of
from core.models.operations import Array, LstmCell, Reduction, Tensor, Unary

if TYPE_CHECKING:
    from cluster.jobs.train_result import StoredModel


OPSET = 18
IR_VERSION = 9
"""Any ONNX Runtime since 1.15 reads these, of 2022 and 2023."""

_UNARY = {"relu": "Relu", "absolute": "Abs", "sqrt": "Sqrt"}
_REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin"}


@dataclass(frozen=True, eq=False)
class _Value:
    """A tensor of the graph by its name; arithmetic with it adds a node."""

    writer: "OnnxWriter"
    name: str

    def __add__(self, other: "Operand") -> "_Value":
        return self.writer.node("Add", self, other)

    def __sub__(self, other: "Operand") -> "_Value":
        return self.writer.node("Sub", self, other)

    def __mul__(self, other: "Operand") -> "_Value":
        return self.writer.node("Mul", self, other)

    def __truediv__(self, other: "Operand") -> "_Value":
        return self.writer.node("Div", self, other)


Operand = _Value | Array | float
"""An input of a node: a tensor, or numbers that become a constant."""


class OnnxWriter(Writer):
    """A writer whose tensors are the names of values in a graph."""

    def __init__(self, model: "StoredModel") -> None:
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        super().__init__(model)

    def input(self, name: str, steps: int, channels: int) -> Tensor:
        """Return the graph's input."""
        self._shape: list[str | int | None] = ["batch", steps, channels]
        return _Value(self, name)

    def model(self) -> bytes:
        """Return the whole model, checked by ONNX's own checker with its inference of shapes."""
        answer = self.logits()
        self._nodes.append(helper.make_node("Identity", [answer.name], [OUTPUT]))
        answered: list[str | int | None] = ["batch", self._network.problem.classes]
        graph = helper.make_graph(
            self._nodes,
            "pscluster",
            [helper.make_tensor_value_info(self.windows.name, TensorProto.FLOAT, self._shape)],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, answered)],
            self._constants,
        )
        whole_model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="pscluster",
            producer_version=__version__,
        )
        onnx.checker.check_model(whole_model, full_check=True)
        content: bytes = whole_model.SerializeToString()
        return content

    def node(self, operation: str, *inputs: Operand, **attributes: Any) -> _Value:
        """Add an operation and return its answer."""
        names = [self._name(operand) for operand in inputs]
        name = f"{operation.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operation, names, [name], name=name, **attributes))
        return _Value(self, name)

    def _name(self, operand: Operand) -> str:
        if isinstance(operand, _Value):
            return operand.name
        name = f"constant_{len(self._constants)}"
        whole = isinstance(operand, np.ndarray) and operand.dtype == np.int64
        values = np.asarray(operand, np.int64 if whole else np.float32, order="C")
        self._constants.append(numpy_helper.from_array(values, name))
        return name

    def dense(self, inputs: Tensor, kernel: Array, bias: Array | None) -> Tensor:
        """Add MatMul and Add."""
        product = self.node("MatMul", inputs, kernel)
        if bias is None:
            return product
        return product + bias

    def lstm(self, sequence: Tensor, cells: Sequence[LstmCell]) -> Tensor:
        """Add one node for both directions.

        The outputs of a backward cell come in the order of the inputs, as ours do.
        """
        hidden = cells[0].hidden
        ways = len(cells)
        biases = [np.concatenate([_gates(cell.bias), np.zeros_like(cell.bias)]) for cell in cells]
        direction = "forward"
        if cells[0].backward:
            direction = "reverse"
        if ways == 2:
            direction = "bidirectional"
        stacked = self.node(
            "LSTM",
            self.transpose(sequence, [1, 0, 2]),
            np.stack([_gates(cell.by_input).T for cell in cells]),
            np.stack([_gates(cell.by_state).T for cell in cells]),
            np.stack(biases),
            hidden_size=hidden,
            direction=direction,
        )  # (steps, ways, batch, hidden)
        in_order = self.transpose(stacked, [2, 0, 1, 3])
        return self.node("Reshape", in_order, _whole(0, 0, ways * hidden))

    def convolution(self, inputs: Tensor, kernel: Array, bias: Array, stride: int) -> Tensor:
        """Add Conv. `SAME_UPPER` puts the odd zero behind the end, as TensorFlow does."""
        convolved = self.node(
            "Conv",
            self.transpose(inputs, [0, 2, 1]),
            kernel.transpose(2, 1, 0),
            bias,
            strides=[stride],
            auto_pad="SAME_UPPER",
        )
        return self.transpose(convolved, [0, 2, 1])

    def layer_norm(self, inputs: Tensor, scale: Array, shift: Array, epsilon: float) -> Tensor:
        """Add LayerNormalization."""
        return self.node("LayerNormalization", inputs, scale, shift, axis=-1, epsilon=epsilon)

    def at(self, sequence: Tensor, step: int) -> Tensor:
        """Add Gather along the steps."""
        return self.node("Gather", sequence, np.array(step, np.int64), axis=STEPS)

    def unary(self, operation: Unary, inputs: Tensor) -> Tensor:
        """Add the node of this operation, or several where ONNX has none."""
        if operation == "square":
            return inputs * inputs
        if operation == "log1p":
            return self._log1p(inputs)
        return self.node(_UNARY[operation], inputs)

    def _log1p(self, inputs: Tensor) -> Tensor:
        """Return log(u) - (u - 1 - x) / u with u = 1 + x.

        ONNX has no log1p, and log(u) alone loses the digits of a small x.
        """
        more = inputs + 1.0
        lost = (more - 1.0) - inputs
        return self.node("Log", more) - lost / more

    def reduce(
        self, operation: Reduction, inputs: Tensor, axis: int, *, keep_axis: bool = False
    ) -> Tensor:
        """Add the reduction's node."""
        return self.node(_REDUCTIONS[operation], inputs, _whole(axis), keepdims=int(keep_axis))

    def clip(self, inputs: Tensor, low: float, high: float) -> Tensor:
        """Add Min, then Max."""
        return self.node("Max", self.node("Min", inputs, high), low)

    def cut(self, inputs: Tensor, axis: int, begin: int, end: int) -> Tensor:
        """Add Slice."""
        return self.node("Slice", inputs, _whole(begin), _whole(end), _whole(axis))

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Add Concat."""
        return self.node("Concat", *tensors, axis=axis)

    def reshape(self, inputs: Tensor, shape: Sequence[int]) -> Tensor:
        """Add Reshape."""
        return self.node("Reshape", inputs, _whole(-1, *shape))

    def transpose(self, inputs: Tensor, order: Sequence[int]) -> Tensor:
        """Add Transpose."""
        return self.node("Transpose", inputs, perm=list(order))


def _whole(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def _gates(values: Array) -> Array:
    """Return ONNX's gates i, o, f, c for ours, i, f, g, o, along the last axis."""
    i, f, g, o = np.split(values, 4, -1)
    return np.concatenate([i, o, f, g], -1)


COMPILED_APART = ("_XlaMustCompile", "_noinline")
"""TensorFlow's marks on a function that nothing may inline: Keras compiles grouped convolutions,
for their gradient."""


def converted(function: Any) -> bytes:
    """A concrete function of `windows` as one ONNX model with a dynamic batch.

    Raises ExportRefused.
    """
    import tf2onnx
    from tf2onnx.tf_loader import (
        convert_variables_to_constants_v2,
    )  # it knows TensorFlow's private name

    refuse_halves(function, "onnx")
    try:
        with _quietly():
            frozen = convert_variables_to_constants_v2(
                function, lower_control_flow=False, aggressive_inlining=True
            )
            (input_tensor,) = frozen.inputs
            (output_tensor,) = frozen.outputs
            model, _ = tf2onnx.convert.from_graph_def(
                _inlined(frozen.graph.as_graph_def(add_shapes=True)),
                input_names=[input_tensor.name],
                output_names=[output_tensor.name],
                tensors_to_rename={input_tensor.name: INPUT, output_tensor.name: OUTPUT},
                custom_op_handlers={"Erfc": (_erfc, [])},
                opset=OPSET,
            )
            return _checked(model)
    except Exception as problem:  # tf2onnx raises whatever it meets
        raise ExportRefused(
            f"--to onnx: tf2onnx cannot write this model ({reason_of(problem):.200}): use --to"
            " savedmodel"
        ) from None


def _inlined(graph: Any) -> Any:
    """Remove the marks of functions that stay apart.

    Then tf2onnx writes their operations in their place.
    """
    for attributes in (
        *(node.attr for node in graph.node),
        *(function.attr for function in graph.library.function),
        *(node.attr for function in graph.library.function for node in function.node_def),
    ):
        for mark in COMPILED_APART:
            attributes.pop(mark, None)
    return graph


def _erfc(graph: Any, node: Any, _name: str, _arguments: Sequence[Any], **_: Any) -> Any:
    """Write 1 - erf(x), the part of the exact GELU that tf2onnx and ONNX lack.

    Its error of 1e-7 is that of float32 near 1.
    """
    constant_one = graph.make_const(f"{node.name}_one", np.ones((), np.float32)).output[0]
    input_names = list(node.input)
    output_names = list(node.output)
    shapes = node.output_shapes
    dtypes = node.output_dtypes
    graph.remove_node(node.name)
    erf = graph.make_node("Erf", input_names, shapes=shapes, dtypes=dtypes).output[0]
    return graph.make_node(
        "Sub",
        [constant_one, erf],
        outputs=output_names,
        name=node.name,
        shapes=shapes,
        dtypes=dtypes,
    )


def _checked(model: Any) -> bytes:
    """The model with names for its batch; raises for an operation that is none of ONNX's own."""
    for values in (model.graph.input, model.graph.output):
        for tensor in values:
            tensor.type.tensor_type.shape.dim[0].dim_param = "batch"
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide what both libraries log about their own workings; an error takes one line."""
    loggers = [logging.getLogger(name) for name in ("tensorflow", "tf2onnx")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
