"""`keras.layers.Dense`, computed by the native library."""

from typing import Any

import keras
import tensorflow as tf
from typing_extensions import override

from kernels.program import NOWHERE, UNARIES, Program
from pscluster.keras.library import computed, fits, value_of


@keras.saving.register_keras_serializable(package="pscluster")
class Dense(keras.layers.Dense):
    """A dense layer in the place of `keras.layers.Dense`, with the same bits on every processor.

    It has the same arguments, weights, results and gradients (to 1e-5). The library computes the
    product in float32 with its bias and ReLU; other activations are TensorFlow's, whose bits are
    those of a kind of processor. As with `LSTM`, other dtypes, XLA, GPUs, TPUs, quantized weights
    and machines that cannot load the library are Keras's own computation.
    """

    @override
    def call(self, inputs: Any, training: Any = None) -> Any:
        """Return (batch, ..., units) from inputs (batch, ..., features)."""
        if not fits(self, inputs) or self.quantization_mode is not None:
            return super().call(inputs, training=training)
        features = inputs.shape[-1]
        sizes = tf.shape(inputs)
        steps = tf.reduce_prod(sizes[1:-1])
        kernel = value_of(self.kernel)
        weights = [kernel]
        bias_at = NOWHERE
        if self.bias is not None:
            weights.append(value_of(self.bias))
            bias_at = features * self.units
        program = Program()
        outputs = program.add("sequence", [program.add("windows", [], steps, features)])
        outputs = program.add("dense", [outputs], 0, bias_at, self.units, 0)
        has_relu = self.activation is keras.activations.relu
        if has_relu:
            program.add("unary", [outputs], UNARIES.index("relu"))
        rows = tf.reshape(inputs, [sizes[0], steps, features])
        layer_outputs = computed(
            program, weights, rows, steps * self.units, training=bool(training)
        )
        layer_outputs = tf.reshape(layer_outputs, tf.concat([sizes[:-1], [self.units]], 0))
        layer_outputs = tf.ensure_shape(layer_outputs, [*inputs.shape[:-1], self.units])
        if self.activation is None or has_relu:
            return layer_outputs
        return self.activation(layer_outputs)
