"""The LSTM with its gradient split in two: the recurrence in a loop, everything else in matrix products over all steps.

TensorFlow's fused gradient op multiplies with the input's weights, and adds to the whole weight gradient, at every
step. Here a step only multiplies with the state's weights; the gradients of inputs and weights are single products
over all steps afterwards. From about 24,000 weights a layer the fewer, larger products win (`docs/models.md`).
"""

import tensorflow as tf

from cluster.models.block_lstm import Gradient, Operands, block_forward


@tf.autograph.experimental.do_not_convert  # autograph would look through custom_gradient at the bare function
@tf.custom_gradient
def split_gradient_lstm(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Same arguments, outputs and gradients as `block_lstm`; the number of steps must be known when traced."""
    steps, features, hidden = inputs.shape[0], inputs.shape[2], bias.shape[0] // 4
    run = block_forward(inputs, kernel, bias)

    def gradient(outputs_gradient: tf.Tensor) -> Operands:
        start = tf.zeros_like(outputs_gradient[:1])
        gates = _gate_gradients(run, outputs_gradient, start, tf.transpose(kernel[features:]), steps)
        rows = tf.reshape(gates, [-1, 4 * hidden])
        previous = tf.concat([start, run.h[:-1]], 0)
        return (
            tf.reshape(tf.matmul(rows, kernel[:features], transpose_b=True), tf.shape(inputs)),
            tf.concat(
                [
                    tf.matmul(tf.reshape(inputs, [-1, features]), rows, transpose_a=True),
                    tf.matmul(tf.reshape(previous, [-1, hidden]), rows, transpose_a=True),
                ],
                0,
            ),
            tf.reduce_sum(rows, 0),
        )

    return run.h, gradient


def _gate_gradients(
    run: tf.Tensor, outputs_gradient: tf.Tensor, start: tf.Tensor, state_weights: tf.Tensor, steps: int
) -> tf.Tensor:
    """The loss by the gates' inputs, shape (steps, batch, 4 * hidden).

    With c the cell, m = tanh(c), h = o m and D the loss by c through h and through the next step's c:
    i, f, g, o receive D g i (1-i), D c' f (1-f), D i (1-g g), dh m o (1-o). The factors beside D and dh depend on
    nothing the loop computes, so they are made for all steps at once.
    """
    i, f, o, g, m = run.i, run.f, run.o, run.ci, run.co
    before = tf.concat([start, run.cs[:-1]], 0)
    by_gate = tf.concat([g * i * (1 - i), before * f * (1 - f), i * (1 - g * g), m * o * (1 - o)], 2)
    by_cell = o * (1 - m * m)

    def step(t: tf.Tensor, by_output: tf.Tensor, carried: tf.Tensor, written: tf.TensorArray) -> tuple[object, ...]:
        by_output = by_output + outputs_gradient[t]
        carried = carried + by_output * by_cell[t]
        gates = tf.concat([carried, carried, carried, by_output], 1) * by_gate[t]
        return t - 1, tf.matmul(gates, state_weights), carried * f[t], written.write(t, gates)

    written = tf.TensorArray(tf.float32, steps, element_shape=[None, by_gate.shape[2]])
    *_, written = tf.while_loop(
        lambda t, *_: t >= 0,
        step,
        [steps - 1, start[0], start[0], written],
        maximum_iterations=steps,
        parallel_iterations=1,
    )
    return written.stack()
