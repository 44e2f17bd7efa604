"""The LSTM over whole sequences from operations that XLA compiles; TensorFlow's fused ones it does not know."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Operands = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


@tf.autograph.experimental.do_not_convert  # autograph would look through custom_gradient at the bare function
@tf.custom_gradient
def xla_lstm(
    inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], Operands]]:
    """Arguments, outputs and gradients of `cluster.models.lstm.block_lstm`; the number of steps must be known.

    One product for all steps' inputs, a loop with one product a step, and the same backwards.
    """
    steps, features, hidden = inputs.shape[0], inputs.shape[2], bias.shape[0] // 4
    batch = tf.shape(inputs)[1]
    by_input, by_state = kernel[:features], kernel[features:]
    rows = tf.matmul(tf.reshape(inputs, [-1, features]), by_input) + bias
    from_inputs = tf.reshape(rows, [steps, batch, 4 * hidden])
    zeros = tf.zeros([batch, hidden])

    def forward(
        k: tf.Tensor, output: tf.Tensor, cell: tf.Tensor, gates: tf.TensorArray, cells: tf.TensorArray,
        outputs: tf.TensorArray,
    ) -> tuple[object, ...]:  # fmt: skip
        i, f, g, o = tf.split(from_inputs[k] + tf.matmul(output, by_state), 4, 1)
        i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
        cell = f * cell + i * g
        output = o * tf.tanh(cell)
        kept = (gates.write(k, tf.concat([i, f, g, o], 1)), cells.write(k, cell), outputs.write(k, output))
        return k + 1, output, cell, *kept

    *_, gates, cells, outputs = _looped(
        forward, steps, tf.constant(0), [zeros, zeros], [4 * hidden, hidden, hidden], lambda k: k < steps
    )
    all_gates, all_cells, all_outputs = gates.stack(), cells.stack(), outputs.stack()

    def gradient(by_outputs: tf.Tensor) -> Operands:
        cells_before = tf.concat([zeros[None], all_cells[:-1]], 0)

        def backward(
            k: tf.Tensor, by_output: tf.Tensor, by_cell: tf.Tensor, written: tf.TensorArray
        ) -> tuple[object, ...]:
            i, f, g, o = tf.split(all_gates[k], 4, 1)
            squashed = tf.tanh(all_cells[k])
            by_output = by_output + by_outputs[k]
            by_cell = by_cell + by_output * o * (1.0 - squashed * squashed)
            found = tf.concat(
                [
                    by_cell * g * i * (1.0 - i),
                    by_cell * cells_before[k] * f * (1.0 - f),
                    by_cell * i * (1.0 - g * g),
                    by_output * squashed * o * (1.0 - o),
                ],
                1,
            )
            return k - 1, tf.matmul(found, by_state, transpose_b=True), by_cell * f, written.write(k, found)

        *_, written = _looped(
            backward, steps, tf.constant(steps - 1), [zeros, zeros], [4 * hidden], lambda k: k >= 0
        )  # fmt: skip
        by_gates = written.stack()
        by_rows, states = tf.reshape(by_gates, [-1, 4 * hidden]), tf.reshape(all_outputs[:-1], [-1, hidden])
        # The first step's state is zero, so its row of gates adds nothing to the state's weights.
        later = tf.reshape(by_gates[1:], [-1, 4 * hidden])
        of_kernel = [tf.matmul(tf.reshape(inputs, [-1, features]), by_rows, transpose_a=True),
                     tf.matmul(states, later, transpose_a=True)]  # fmt: skip
        by_inputs = tf.reshape(tf.matmul(by_rows, by_input, transpose_b=True), tf.shape(inputs))
        return by_inputs, tf.concat(of_kernel, 0), tf.reduce_sum(by_rows, 0)

    return all_outputs, gradient


def _looped(
    body: Callable[..., tuple[object, ...]], steps: int, first: tf.Tensor, states: list[tf.Tensor],
    widths: list[int], goes_on: Callable[[tf.Tensor], tf.Tensor],
) -> tuple[Any, ...]:  # fmt: skip
    """The loop over all steps; it writes an array of (batch, width) a step for each of `widths`."""
    written = [tf.TensorArray(tf.float32, steps, element_shape=[states[0].shape[0], width]) for width in widths]
    found: tuple[Any, ...] = tf.while_loop(
        lambda k, *_: goes_on(k), body, [first, *states, *written], maximum_iterations=steps, parallel_iterations=1
    )
    return found
