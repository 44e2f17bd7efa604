"""Layers that the native library computes (`docs/kernels.md`), and whether it may."""

from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops import (
    control_flow_util,
)  # says whether XLA compiles this graph; nothing public does

from core.models.native import OWN_THREADS
from core.models.operations import portable
from kernels.library import can_be_loaded, operations
from kernels.program import Program

SLOTS = 16
"""Into which a batch is cut: as many threads compute at most, and the bits follow from it."""
WIDEST = 4096
"""Units of the widest LSTM that the library computes."""


def fits(layer: Any, inputs: Any) -> bool:
    """Return whether the library computes this call of a layer: float32 on a processor.

    What it does not compute is Keras's own: XLA, GPUs, TPUs, exports, other types, a machine on
    which the library cannot be loaded.
    """
    return (
        keras.backend.backend() == "tensorflow"
        and isinstance(inputs, tf.Tensor)
        and inputs.dtype == tf.float32
        and 0 not in inputs.shape
        and layer.compute_dtype == "float32"
        and not portable()
        and not tf.config.list_logical_devices("GPU")
        and not tf.config.list_logical_devices("TPU")
        and not _compiled_by_xla()
        and can_be_loaded()
    )


def computed(
    program: Program, weights: list[tf.Tensor], rows: tf.Tensor, floats: Any, *, training: bool
) -> tf.Tensor:
    """Return (batch, floats), the last value of a program of windows (batch, steps, features).

    The weights lie one after the other, in this order. In training it keeps what the gradient
    needs; else a gradient computes it again. It can be differentiated once.
    """
    settings = tf.stack([SLOTS, OWN_THREADS, floats, int(training)])
    words = tf.stack(program.words)

    # autograph would look through custom_gradient at the bare function
    @tf.autograph.experimental.do_not_convert
    @tf.custom_gradient
    def layer(vector: tf.Tensor, windows: tf.Tensor) -> Any:
        given = {"program": words, "trained": vector, "windows": windows, "settings": settings}
        run = operations().pscluster_layer(**given)

        def gradient(by_results: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            found = operations().pscluster_layer_gradient(
                **given, kept=run.kept, by_results=by_results
            )
            return found.by_trained, tf.reshape(found.by_windows, tf.shape(windows))

        return run.results, gradient

    vector = tf.concat([tf.reshape(each, [-1]) for each in weights], 0)
    return layer(vector, rows)


def value_of(weight: Any) -> tf.Tensor:
    """Return a weight as a tensor.

    Keras hands out what it has in a stateless call, else a variable, which a custom gradient would
    count as its own.
    """
    return tf.convert_to_tensor(keras.ops.convert_to_tensor(weight))


def size_of(tensor: tf.Tensor, axis: int) -> Any:
    """Return the size of an axis, a number where it is known."""
    return tensor.shape[axis] or tf.shape(tensor)[axis]


def _compiled_by_xla() -> bool:
    if tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))
