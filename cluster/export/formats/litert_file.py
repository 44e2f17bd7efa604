"""`model.tflite`: the traced function with constants; LiteRT's converter fuses each LSTM.

The fused operation holds the state of one window, so the model takes one window at a time; it keeps
that state between calls until `reset_all_variables()`. The alternatives are far slower or need
TensorFlow (docs/export.md).
"""

import struct
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.export.graph import Answers, traced
from cluster.export.request import ExportRefused, Format, refuse_halves
from core.exported.description import Description
from core.exported.runtimes import LiteRtModel
from core.ground.errors import reason_of
from core.ground.lazy import tf

if TYPE_CHECKING:
    from cluster.jobs.train_result import StoredModel

CELL_CLIP = 6
"""The place of `cell_clip` in the table of a fused LSTM's options."""


class LiteRtFile(Format):
    """A file of LiteRT."""

    name = "litert"
    quantizable = True
    packages = {"ai_edge_litert.interpreter": "ai-edge-litert"}  # noqa: RUF012  a plain fact

    @staticmethod
    def write(model: "StoredModel", path: Path, *, quantized: bool) -> None:
        """Convert the function that TensorFlow traces for one window."""
        path.write_bytes(converted(traced(model, batch=1, lstm=fusing_lstm()), quantized=quantized))

    @staticmethod
    def answers_of(path: Path, description: Description) -> Answers:
        """Open the file in an interpreter. Raises ExportRefused where it cannot be used."""
        try:
            return LiteRtModel(path.read_bytes(), description, threads=1).logits
        except RuntimeError as problem:
            raise ExportRefused(
                f"--to litert: LiteRT cannot use what its converter wrote"
                f" ({reason_of(problem):.200}): use --to savedmodel"
            ) from None


def converted(function: Any, *, quantized: bool) -> bytes:
    """A concrete function without variables, converted to LiteRT's own operations alone.

    Raises ExportRefused.
    """
    refuse_halves(function, "litert")
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module())
    if quantized:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    try:
        content: bytes = converter.convert()
    except (
        Exception
    ) as problem:  # the converter's error is private, and what it meets on its way is anything
        raise ExportRefused(
            f"--to litert: the converter refuses this model ({reason_of(problem):.200}): use --to"
            " savedmodel"
        ) from None
    return without_clips(content)


def without_clips(content: bytes) -> bytes:
    """Return the model without the limit of 10 on the cells of each fused LSTM.

    The converter sets this limit; Keras never had one. The number is overwritten where it lies:
    nothing moves in the file.
    """
    from tensorflow.lite.python import schema_py_generated as schema

    written = bytearray(content)
    model = schema.Model.GetRootAs(written, 0)
    graphs = [model.Subgraphs(k) for k in range(model.SubgraphsLength())]
    for operator in (
        graph.Operators(k) for graph in graphs for k in range(graph.OperatorsLength())
    ):
        if operator.BuiltinOptionsType() != schema.BuiltinOptions.UnidirectionalSequenceLSTMOptions:
            continue
        options = schema.UnidirectionalSequenceLSTMOptions()
        table = operator.BuiltinOptions()
        options.Init(table.Bytes, table.Pos)
        if field := options._tab.Offset(CELL_CLIP):
            struct.pack_into("<f", written, options._tab.Pos + field, 0.0)
    return bytes(written)


def fusing_lstm() -> Callable[[Any, Any, Any], Any]:
    """Return an LSTM whose every call the converter replaces by one operation.

    Each call is a function that the converter takes for one of Keras's.
    """
    numbers = count()

    def lstm(inputs: Any, kernel: Any, bias: Any) -> Any:
        steps, batch, features = inputs.shape
        hidden = bias.shape[0] // 4
        known_as = {
            "api_implements": f"lstm_{next(numbers)}",
            "api_preferred_device": "CPU",
            "time_major": True,
            "go_backwards": False,
        }

        @tf.function(autograph=False, experimental_attributes=known_as)
        def keras_lstm(
            inputs: Any, output: Any, cell: Any, kernel: Any, recurrent: Any, bias: Any
        ) -> Any:
            """Compute with the signature and the answers of Keras 2.

            It answers with the last output, all outputs, the last output, the last cell and a
            number.
            """

            def step(at: Any, output: Any, cell: Any, written: Any) -> Any:
                gates = tf.matmul(inputs[at], kernel) + tf.matmul(output, recurrent) + bias
                i, f, g, o = tf.split(gates, 4, -1)
                cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
                output = tf.sigmoid(o) * tf.tanh(cell)
                return at + 1, output, cell, written.write(at, output)

            written = tf.TensorArray(tf.float32, steps, element_shape=[batch, hidden])
            _, last, cell, written = tf.while_loop(
                lambda at, *_: at < steps, step, (0, output, cell, written)
            )
            return last, written.stack(), last, cell, tf.constant(1.0)

        zeros = tf.zeros([batch, hidden])
        return keras_lstm(inputs, zeros, zeros, kernel[:features], kernel[features:], bias)[1]

    return lstm
