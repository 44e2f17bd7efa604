"""The LSTM as TensorFlow's fused CPU ops: the whole sequence in one op, forwards and backwards."""

from collections.abc import Callable

import tensorflow as tf

Operands = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
"""Inputs, kernel and bias of a layer, or the loss's gradients by them."""

Gradient = Callable[[tf.Tensor], Operands]


@tf.autograph.experimental.do_not_convert  # autograph would look through custom_gradient at the bare function
@tf.custom_gradient
def block_lstm(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Outputs of every step, shape (steps, batch, hidden), from inputs of shape (steps, batch, features).

    `kernel` has shape (features + hidden, 4 * hidden), `bias` (4 * hidden,), gates in the order i, f, g, o: Keras's
    order and BlockLSTMV2's as well (the older BlockLSTM has i, g, f, o and adds a forget bias of its own).

    The gradient is called by hand because TensorFlow 2.21 registers the older op's for BlockLSTMV2
    (`tensorflow/python/ops/rnn_grad.py`), which takes f for g and g for f: a loss still falls, on wrong gradients.
    """
    run = block_forward(inputs, kernel, bias)

    def gradient(outputs_gradient: tf.Tensor) -> Operands:
        result = tf.raw_ops.BlockLSTMGradV2(
            **_operands(inputs, kernel, bias),
            **run._asdict(),
            cs_grad=tf.zeros_like(run.cs),
            h_grad=outputs_gradient,
        )
        return result.x_grad, result.w_grad, result.b_grad

    return run.h, gradient


def block_forward(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """All that BlockLSTMV2 keeps, each of shape (steps, batch, hidden): i, cs, f, o, ci (= g), co (= tanh of cs), h."""
    return tf.raw_ops.BlockLSTMV2(**_operands(inputs, kernel, bias), cell_clip=0.0)


def _operands(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> dict[str, object]:
    hidden = bias.shape[0] // 4
    state = tf.zeros([tf.shape(inputs)[1], hidden])
    no_peephole = tf.zeros([hidden])
    return {
        "seq_len_max": tf.shape(inputs, out_type=tf.int64)[0],
        "x": inputs,
        "cs_prev": state,
        "h_prev": state,
        "w": kernel,
        "wci": no_peephole,
        "wcf": no_peephole,
        "wco": no_peephole,
        "b": bias,
        "use_peephole": False,
    }
