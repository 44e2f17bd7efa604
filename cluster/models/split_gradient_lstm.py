"""The LSTM with its gradient split in two: the recurrence in a loop, everything else in matrix products over all steps.

TensorFlow's fused gradient op multiplies with the input's weights, and adds to the whole weight gradient, at every
step. Here a step only multiplies with the state's weights; the gradients of inputs and weights are single products
over all steps afterwards. From about 24,000 weights a layer the fewer, larger products win (`docs/models.md`).
"""

import tensorflow as tf

from cluster.models.block_lstm import Gradient, Operands, block_forward

UNROLLED = 16
"""Steps of one turn of the loop, at most: a turn costs about as much as two steps of a narrow layer (measured)."""


@tf.autograph.experimental.do_not_convert  # autograph would look through custom_gradient at the bare function
@tf.custom_gradient
def split_gradient_lstm(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Same arguments, outputs and gradients as `block_lstm`; the number of steps must be known when traced."""
    features, hidden = inputs.shape[2], bias.shape[0] // 4
    run = block_forward(inputs, kernel, bias)

    def gradient(outputs_gradient: tf.Tensor) -> Operands:
        swapped = _swap(kernel)
        gates = _gate_gradients(run, outputs_gradient, swapped[features:], bias)
        rows = tf.reshape(gates, [-1, 4 * hidden])
        read = tf.concat([inputs, _one_step_later(run.h)], 2)
        return (
            tf.reshape(tf.matmul(rows, swapped[:features], transpose_b=True), tf.shape(inputs)),
            _swap(tf.matmul(tf.reshape(read, [-1, features + hidden]), rows, transpose_a=True)),
            _swap(tf.reduce_sum(rows, 0)),
        )

    return run.h, gradient


def _gate_gradients(
    run: tf.Tensor, outputs_gradient: tf.Tensor, state_weights: tf.Tensor, bias: tf.Tensor
) -> tf.Tensor:
    """The loss by the gates' inputs, shape (steps, batch, 4 * hidden), gates in the order i, g, f, o.

    A step is the gradient op of the older cell, which knows no other order, and one product. The op wants all that its
    cell read, and without peepholes takes nothing but shapes from the inputs, the weights, the state and the cell.
    """
    steps, hidden = outputs_gradient.shape[0], bias.shape[0] // 4
    unrolled = max(size for size in range(1, UNROLLED + 1) if steps % size == 0)
    sequences = [
        tf.reshape(sequence, [steps // unrolled, unrolled, -1, hidden])
        for sequence in (outputs_gradient, _one_step_later(run.cs), run.i, run.f, run.o, run.ci, run.co)
    ]
    zeros, no_peephole = tf.zeros_like(outputs_gradient[0]), tf.zeros([hidden])
    onto_state = tf.transpose(state_weights)

    def turn(k: tf.Tensor, by_output: tf.Tensor, by_cell: tf.Tensor, written: tf.TensorArray) -> tuple[object, ...]:
        gates: list[tf.Tensor] = []
        for step in zip(*(reversed(tf.unstack(sequence[k], unrolled)) for sequence in sequences), strict=True):
            by_own_output, cell_before, i, f, o, g, cell_squashed = step
            found = tf.raw_ops.LSTMBlockCellGrad(
                x=zeros[:, :0], h_prev=zeros, w=state_weights, b=bias, cs=zeros,
                wci=no_peephole, wcf=no_peephole, wco=no_peephole, use_peephole=False,
                cs_prev=cell_before, i=i, f=f, o=o, ci=g, co=cell_squashed,
                cs_grad=by_cell, h_grad=by_output + by_own_output,
            )  # fmt: skip
            gates.append(found.dicfo)
            by_output, by_cell = tf.matmul(found.dicfo, onto_state), found.cs_prev_grad
        return k - 1, by_output, by_cell, written.write(k, tf.stack(gates[::-1]))

    turns = steps // unrolled
    written = tf.TensorArray(tf.float32, turns, element_shape=[unrolled, None, 4 * hidden])
    *_, written = tf.while_loop(
        lambda k, *_: k >= 0,
        turn,
        [turns - 1, zeros, zeros, written],
        maximum_iterations=turns,
        parallel_iterations=1,
    )
    return written.stack()


def _one_step_later(sequence: tf.Tensor) -> tf.Tensor:
    """What each step found: zeros, then the sequence without its last step."""
    return tf.concat([tf.zeros_like(sequence[:1]), sequence[:-1]], 0)


def _swap(gates: tf.Tensor) -> tf.Tensor:
    """From the order i, f, g, o along the last axis to i, g, f, o, and back."""
    i, second, third, o = tf.split(gates, 4, -1)
    return tf.concat([i, third, second, o], -1)
