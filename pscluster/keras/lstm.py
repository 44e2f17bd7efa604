"""`keras.layers.LSTM` with this project's kernels inside (`pscluster/keras/kernels.py`)."""

from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops import control_flow_util  # says whether XLA compiles this graph; nothing public does

from pscluster.keras.kernels import State, Weights, lstm


@keras.saving.register_keras_serializable(package="pscluster")
class LSTM(keras.layers.LSTM):
    """A drop-in for `keras.layers.LSTM`: same arguments, weights, results and gradients (to 1e-5), faster on a CPU.

    Weights have Keras's names, shapes and order, so `set_weights`, `.weights.h5` and `keras.layers.Bidirectional` take
    either layer. A `.keras` file with this layer opens after `import pscluster.keras`, or in plain Keras with
    `keras.models.load_model(file, custom_objects={"pscluster>LSTM": keras.layers.LSTM})`.

    The kernels run for float32, tanh and sigmoid, with any of `return_sequences`, `return_state`, `go_backwards`,
    `initial_state`, `stateful`, `unroll`, `use_bias` and input `dropout`. Everything else is Keras's own computation,
    with Keras's results and speed: masks, other activations, `recurrent_dropout` in training, other dtypes, XLA
    (`jit_compile=True`), `use_cudnn=True`, and a machine with a GPU, where Keras has cuDNN.

    The kernels have first derivatives only: for a gradient of a gradient use `keras.layers.LSTM`.
    """

    def inner_loop(self, sequences: Any, initial_state: Any, mask: Any, training: Any = False) -> Any:
        """Keras's hook: the last output, all outputs and the last states, from (batch, steps, features)."""
        only_mask = mask[0] if isinstance(mask, list | tuple) else mask
        if only_mask is not None or not self._fits(sequences, training):
            return super().inner_loop(sequences, initial_state, mask=mask, training=training)
        if training and self.dropout:
            # One mask for all steps, as Keras draws it: the seed's state moves on alike.
            sequences = sequences * tf.expand_dims(self.cell.get_dropout_mask(sequences[:, 0, :]), 1)
        inputs = tf.transpose(sequences, [1, 0, 2])
        if self.go_backwards:
            inputs = tf.reverse(inputs, [0])
        kernel, recurrent = _value(self.cell.kernel), _value(self.cell.recurrent_kernel)
        bias = _value(self.cell.bias) if self.use_bias else tf.zeros([4 * self.units])
        first, weights = State(*initial_state), Weights(kernel, recurrent, bias)
        outputs, last = lstm(inputs, first, weights, every_step=self.return_sequences)
        all_outputs = last.output[:, None] if outputs is None else tf.transpose(outputs, [1, 0, 2])
        return last.output, all_outputs, list(last)

    def _fits(self, sequences: Any, training: Any) -> bool:
        cell = self.cell
        masks_per_gate = cell.implementation == 1 or cell.dropout >= 1.0
        return (
            keras.backend.backend() == "tensorflow"
            and self.compute_dtype == "float32"
            and sequences.dtype == tf.float32
            and sequences.shape[1] != 0
            and cell.activation is keras.activations.tanh
            and cell.recurrent_activation is keras.activations.sigmoid
            and not (training and (cell.recurrent_dropout or (cell.dropout and masks_per_gate)))
            and self.use_cudnn is not True
            and not tf.config.list_logical_devices("GPU")
            and not _compiled_by_xla()
        )


def _value(weight: Any) -> tf.Tensor:
    # Keras hands out what it has in a stateless call, else a variable, which a custom gradient would count as its own.
    return tf.convert_to_tensor(keras.ops.convert_to_tensor(weight))


def _compiled_by_xla() -> bool:
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    return graph is not None and bool(control_flow_util.GraphOrParentsInXlaContext(graph))
