"""The LSTM over whole sequences by TensorFlow's operations; the layer's shapes choose a kernel.

`block_lstm` is TensorFlow's fused ops, forwards and backwards. Its gradient multiplies with the
input's weights, and adds to the whole weight gradient, at every step. `looped_gradient_lstm` goes
backwards as `xla_lstm` does, with single products over all steps after a loop. From about 32,000
weights a layer the fewer, larger products win (`docs/models.md`).

`xla_lstm` is made from operations that XLA compiles.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from core.models.operations import Lstm, for_xla

Operands = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


class LstmRun(NamedTuple):
    """What the gradient reads of each step: the gates i, f, g, o, the cell, the output."""

    gates: tf.Tensor
    cells: tf.Tensor
    outputs: tf.Tensor


# autograph would look through custom_gradient at the bare function
@tf.autograph.experimental.do_not_convert
@tf.custom_gradient
def xla_lstm(
    inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], Operands]]:
    """Compute what `core.models.lstm.block_lstm` does; the number of steps must be known.

    One product for all steps' inputs, a loop with one product a step, and the same backwards.
    """
    run = _forwards(inputs, kernel, bias)

    def gradient(by_outputs: tf.Tensor) -> Operands:
        return looped_gradient(run, by_outputs, inputs, kernel)

    return run.outputs, gradient


def looped_gradient(
    run: LstmRun, by_outputs: tf.Tensor, inputs: tf.Tensor, kernel: tf.Tensor
) -> Operands:
    """Return the loss by inputs, kernel and bias; the number of steps must be known."""
    features = inputs.shape[2]
    hidden = kernel.shape[1] // 4
    by_gates = _gate_gradients(run, by_outputs, kernel[features:])
    by_rows = tf.reshape(by_gates, [-1, 4 * hidden])
    states = tf.reshape(run.outputs[:-1], [-1, hidden])
    # The first step's state is zero, so its row of gates adds nothing to the state's weights.
    later = tf.reshape(by_gates[1:], [-1, 4 * hidden])
    of_kernel = [
        tf.matmul(tf.reshape(inputs, [-1, features]), by_rows, transpose_a=True),
        tf.matmul(states, later, transpose_a=True),
    ]
    by_inputs = tf.matmul(by_rows, kernel[:features], transpose_b=True)
    return (
        tf.reshape(by_inputs, tf.shape(inputs)),
        tf.concat(of_kernel, 0),
        tf.reduce_sum(by_rows, 0),
    )


def _forwards(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> LstmRun:
    steps = inputs.shape[0]
    features = inputs.shape[2]
    hidden = bias.shape[0] // 4
    batch = tf.shape(inputs)[1]
    by_state = kernel[features:]
    rows = tf.matmul(tf.reshape(inputs, [-1, features]), kernel[:features]) + bias
    from_inputs = tf.reshape(rows, [steps, batch, 4 * hidden])
    zeros = tf.zeros([batch, hidden])

    def forward(
        k: tf.Tensor,
        output: tf.Tensor,
        cell: tf.Tensor,
        gates: tf.TensorArray,
        cells: tf.TensorArray,
        outputs: tf.TensorArray,
    ) -> tuple[object, ...]:
        i, f, g, o = tf.split(from_inputs[k] + tf.matmul(output, by_state), 4, 1)
        i = tf.sigmoid(i)
        f = tf.sigmoid(f)
        g = tf.tanh(g)
        o = tf.sigmoid(o)
        cell = f * cell + i * g
        output = o * tf.tanh(cell)
        gates = gates.write(k, tf.concat([i, f, g, o], 1))
        return k + 1, output, cell, gates, cells.write(k, cell), outputs.write(k, output)

    *_, gates, cells, outputs = _looped(
        forward,
        steps,
        tf.constant(0),
        [zeros, zeros],
        [4 * hidden, hidden, hidden],
        lambda k: k < steps,
    )
    return LstmRun(gates.stack(), cells.stack(), outputs.stack())


def _gate_gradients(run: LstmRun, by_outputs: tf.Tensor, by_state: tf.Tensor) -> tf.Tensor:
    """Return the loss by the gates' inputs, (steps, batch, 4 * hidden), in the order i, f, g, o."""
    steps = by_outputs.shape[0]
    hidden = by_state.shape[0]
    zeros = tf.zeros_like(run.cells[0])
    cells_before = tf.concat([zeros[None], run.cells[:-1]], 0)

    def backward(
        k: tf.Tensor, by_output: tf.Tensor, by_cell: tf.Tensor, written: tf.TensorArray
    ) -> tuple[object, ...]:
        i, f, g, o = tf.split(run.gates[k], 4, 1)
        squashed = tf.tanh(run.cells[k])
        by_output = by_output + by_outputs[k]
        by_cell = by_cell + by_output * o * (1.0 - squashed * squashed)
        by_gates = tf.concat(
            [
                by_cell * g * i * (1.0 - i),
                by_cell * cells_before[k] * f * (1.0 - f),
                by_cell * i * (1.0 - g * g),
                by_output * squashed * o * (1.0 - o),
            ],
            1,
        )
        by_output = tf.matmul(by_gates, by_state, transpose_b=True)
        return k - 1, by_output, by_cell * f, written.write(k, by_gates)

    *_, written = _looped(
        backward, steps, tf.constant(steps - 1), [zeros, zeros], [4 * hidden], lambda k: k >= 0
    )
    return written.stack()


def _looped(
    body: Callable[..., tuple[object, ...]],
    steps: int,
    first: tf.Tensor,
    states: list[tf.Tensor],
    widths: list[int],
    goes_on: Callable[[tf.Tensor], tf.Tensor],
) -> tuple[Any, ...]:
    """The loop over all steps; it writes an array of (batch, width) a step for each of `widths`."""
    written = [
        tf.TensorArray(tf.float32, steps, element_shape=[states[0].shape[0], width])
        for width in widths
    ]
    final_values: tuple[Any, ...] = tf.while_loop(
        lambda k, *_: goes_on(k),
        body,
        [first, *states, *written],
        maximum_iterations=steps,
        parallel_iterations=1,
    )
    return final_values


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
