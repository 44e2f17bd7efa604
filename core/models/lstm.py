"""The LSTM over whole sequences by TensorFlow's operations; the layer's shapes choose a kernel.

`block_lstm` is TensorFlow's fused ops, forwards and backwards. Its gradient multiplies with the
input's weights, and adds to the whole weight gradient, at every step. `looped_gradient_lstm` goes
backwards as `xla_lstm` does, with single products over all steps after a loop. From about 32,000
weights a layer the fewer, larger products win (`docs/models.md`).
"""

from collections.abc import Callable

import tensorflow as tf

from core.models.kernels import Lstm, for_xla
from core.models.xla_lstm import LstmRun, Operands, looped_gradient, xla_lstm

Gradient = Callable[[tf.Tensor], Operands]


# autograph would look through custom_gradient at the bare function
@tf.autograph.experimental.do_not_convert
@tf.custom_gradient
def block_lstm(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Return the outputs of every step (steps, batch, hidden) from (steps, batch, features).

    `kernel` has shape (features + hidden, 4 * hidden), `bias` (4 * hidden,), gates in the order i,
    f, g, o: Keras's order and BlockLSTMV2's as well (the older BlockLSTM has i, g, f, o and adds a
    forget bias of its own).

    The gradient is called by hand because TensorFlow 2.21 registers the older op's for BlockLSTMV2
    (`tensorflow/python/ops/rnn_grad.py`), which takes f for g and g for f: a loss still falls, on
    wrong gradients.
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


# autograph would look through custom_gradient at the bare function
@tf.autograph.experimental.do_not_convert
@tf.custom_gradient
def looped_gradient_lstm(
    inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor
) -> tuple[tf.Tensor, Gradient]:
    """Compute as `block_lstm` does; the number of steps must be known when this is traced."""
    forward = block_forward(inputs, kernel, bias)
    run = LstmRun(
        tf.concat([forward.i, forward.f, forward.ci, forward.o], -1), forward.cs, forward.h
    )

    def gradient(by_outputs: tf.Tensor) -> Operands:
        return looped_gradient(run, by_outputs, inputs, kernel)

    return forward.h, gradient


def block_forward(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Return all that BlockLSTMV2 keeps, each (steps, batch, hidden).

    These are i, cs, f, o, ci (= g), co (= tanh of cs) and h.
    """
    return tf.raw_ops.BlockLSTMV2(**_operands(inputs, kernel, bias), cell_clip=0.0)


def _operands(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> dict[str, object]:
    """Return what the fused ops read; the first state is zero."""
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


BLOCK_LIMIT = 32 * 1024
"""Weights up to which the fused gradient op is faster, measured (`docs/models.md`): 64 units on 64
features."""


def lstm(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    *,
    backward: bool = False,
    by: Lstm | None = None,
) -> tf.Tensor:
    """Return the outputs of every step (steps, batch, hidden) from (steps, batch, features).

    `kernel`, shape (features + hidden, 4 * hidden), holds the input's rows, then the state's;
    `bias` has shape (4 * hidden,); gates in Keras's order i, f, g, o; the first state is zero.
    `backward` reads the inputs from the last step to the first; output k belongs to input k either
    way. `by` computes in the place of our kernels.
    """
    run = block_lstm
    if kernel.shape.num_elements() > BLOCK_LIMIT:
        run = looped_gradient_lstm
    if for_xla():
        run = xla_lstm
    run = by or run
    if backward:
        return tf.reverse(run(tf.reverse(inputs, [0]), kernel, bias), [0])
    return run(inputs, kernel, bias)
