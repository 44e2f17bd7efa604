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
        by_inputs = tf.matmul(tf.reshape(inputs, [-1, features]), rows, transpose_a=True)
        # The first step's state is zero, so its row of gates adds nothing to the state's weights.
        states, rows_after = tf.reshape(run.h[:-1], [-1, hidden]), tf.reshape(gates[1:], [-1, 4 * hidden])
        by_state = tf.matmul(states, rows_after, transpose_a=True)
        return (
            tf.reshape(tf.matmul(rows, swapped[:features], transpose_b=True), tf.shape(inputs)),
            _swap(tf.concat([by_inputs, by_state], 0)),
            _swap(tf.raw_ops.BiasAddGrad(out_backprop=rows)),  # several times as fast as reduce_sum (measured)
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
    zeros, no_peephole = tf.zeros_like(outputs_gradient[0]), tf.zeros([hidden])
    cell_before = tf.concat([zeros[None], run.cs[:-1]], 0)
    sequences = [
        tf.reshape(sequence, [steps // unrolled, unrolled, -1, hidden])
        for sequence in (outputs_gradient, cell_before, run.i, run.f, run.o, run.ci, run.co)
    ]
    onto_state = tf.transpose(state_weights)

    def turn(k: tf.Tensor, by_output: tf.Tensor, by_cell: tf.Tensor, written: tf.TensorArray) -> tuple[object, ...]:
        parts = [tf.unstack(sequence[k], unrolled) for sequence in sequences]
        for step in reversed(range(unrolled)):
            by_own_output, before, i, f, o, g, squashed = (part[step] for part in parts)
            found = tf.raw_ops.LSTMBlockCellGrad(
                x=zeros[:, :0], h_prev=zeros, w=state_weights, b=bias, cs=zeros,
                wci=no_peephole, wcf=no_peephole, wco=no_peephole, use_peephole=False,
                cs_prev=before, i=i, f=f, o=o, ci=g, co=squashed,
                cs_grad=by_cell, h_grad=by_output + by_own_output,
            )  # fmt: skip
            written = written.write(k * unrolled + step, found.dicfo)
            by_output, by_cell = tf.matmul(found.dicfo, onto_state), found.cs_prev_grad
        return k - 1, by_output, by_cell, written

    turns = steps // unrolled
    written = tf.TensorArray(tf.float32, steps, element_shape=[None, 4 * hidden])
    *_, written = tf.while_loop(
        lambda k, *_: k >= 0,
        turn,
        [turns - 1, zeros, zeros, written],
        maximum_iterations=turns,
        parallel_iterations=1,
    )
    return written.stack()


def _swap(gates: tf.Tensor) -> tf.Tensor:
    """From the order i, f, g, o along the last axis to i, g, f, o, and back."""
    i, second, third, o = tf.split(gates, 4, -1)
    return tf.concat([i, third, second, o], -1)
