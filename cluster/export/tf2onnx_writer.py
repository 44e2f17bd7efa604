"""A traced function as an ONNX graph by tf2onnx, the converter of Keras's own exporter.

Keras's `export(format="onnx")` cannot be used as it is: it leaves constants that a layer captured,
such as those of `Normalization`, as further inputs of the file, and names its answer after
TensorFlow's node. So the function gets its constants first, as for LiteRT; that takes any app, with
and without Keras.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx

from cluster.export.formats.format import ExportRefused, refuse_halves
from cluster.export.graph import INPUT, OUTPUT
from cluster.export.onnx_writer import IR_VERSION, OPSET
from core.ground.errors import reason_of

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
