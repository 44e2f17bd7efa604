"""Which LSTM kernel runs a layer: decided by the layer's shapes alone, so that every machine runs the same one."""

import tensorflow as tf

from cluster.models.block_lstm import block_lstm
from cluster.models.split_gradient_lstm import split_gradient_lstm

BLOCK_LIMIT = 24 * 1024
"""Weights up to which the fused gradient op is faster, measured (`docs/models.md`): about 55 units on 55 features."""


def lstm(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, *, backward: bool = False) -> tf.Tensor:
    """Outputs of every step, shape (steps, batch, hidden), from inputs of shape (steps, batch, features).

    `kernel`, shape (features + hidden, 4 * hidden), holds the input's rows, then the state's; `bias` has shape
    (4 * hidden,); gates in Keras's order i, f, g, o; the first state is zero. `backward` reads the inputs from the
    last step to the first; output k belongs to input k either way.
    """
    run = block_lstm if kernel.shape.num_elements() <= BLOCK_LIMIT else split_gradient_lstm
    return tf.reverse(run(tf.reverse(inputs, [0]), kernel, bias), [0]) if backward else run(inputs, kernel, bias)
