"""The LSTM over whole sequences in two kernels; the layer's shapes alone choose one, the same on every processor.

`block_lstm` is TensorFlow's fused ops, forwards and backwards. Its gradient multiplies with the input's weights, and
adds to the whole weight gradient, at every step. `split_gradient_lstm` only multiplies with the state's weights in a
loop; the gradients of inputs and weights are single products over all steps afterwards. From about 24,000 weights a
layer the fewer, larger products win (`docs/models.md`).
"""

from collections.abc import Callable

import tensorflow as tf

from cluster.models.kernels import for_xla, other_lstm
from cluster.models.xla_lstm import xla_lstm

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
            **operands(inputs, kernel, bias),
            **run._asdict(),
            cs_grad=tf.zeros_like(run.cs),
            h_grad=outputs_gradient,
        )
        return result.x_grad, result.w_grad, result.b_grad

    return run.h, gradient


def block_forward(
    inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, first: tuple[tf.Tensor, tf.Tensor] | None = None
) -> tf.Tensor:
    """All that BlockLSTMV2 keeps, each of shape (steps, batch, hidden): i, cs, f, o, ci (= g), co (= tanh of cs), h."""
    return tf.raw_ops.BlockLSTMV2(**operands(inputs, kernel, bias, first), cell_clip=0.0)


def operands(
    inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, first: tuple[tf.Tensor, tf.Tensor] | None = None
) -> dict[str, object]:
    """What the fused ops read; `first` is output and cell before the first step, zeros by default."""
    hidden = bias.shape[0] // 4
    state = tf.zeros([tf.shape(inputs)[1], hidden]) if first is None else None
    output, cell = (state, state) if first is None else first
    no_peephole = tf.zeros([hidden])
    return {
        "seq_len_max": tf.shape(inputs, out_type=tf.int64)[0],
        "x": inputs,
        "cs_prev": cell,
        "h_prev": output,
        "w": kernel,
        "wci": no_peephole,
        "wcf": no_peephole,
        "wco": no_peephole,
        "b": bias,
        "use_peephole": False,
    }


UNROLLED = 16
"""Steps of one turn of the loop, at most: a turn costs about as much as two steps of a narrow layer (measured)."""


@tf.autograph.experimental.do_not_convert  # autograph would look through custom_gradient at the bare function
@tf.custom_gradient
def split_gradient_lstm(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Same arguments, outputs and gradients as `block_lstm`; the number of steps must be known when traced."""
    features, hidden = inputs.shape[2], bias.shape[0] // 4
    run = block_forward(inputs, kernel, bias)

    def gradient(outputs_gradient: tf.Tensor) -> Operands:
        swapped = swap(kernel)
        gates = _gate_gradients(run, outputs_gradient, swapped[features:], bias)
        rows = tf.reshape(gates, [-1, 4 * hidden])
        by_inputs = tf.matmul(tf.reshape(inputs, [-1, features]), rows, transpose_a=True)
        # The first step's state is zero, so its row of gates adds nothing to the state's weights.
        states, rows_after = tf.reshape(run.h[:-1], [-1, hidden]), tf.reshape(gates[1:], [-1, 4 * hidden])
        by_state = tf.matmul(states, rows_after, transpose_a=True)
        return (
            tf.reshape(tf.matmul(rows, swapped[:features], transpose_b=True), tf.shape(inputs)),
            swap(tf.concat([by_inputs, by_state], 0)),
            swap(tf.raw_ops.BiasAddGrad(out_backprop=rows)),  # several times as fast as reduce_sum (measured)
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


def swap(gates: tf.Tensor) -> tf.Tensor:
    """The gates from the order i, f, g, o along the last axis to i, g, f, o, and back."""
    i, second, third, o = tf.split(gates, 4, -1)
    return tf.concat([i, third, second, o], -1)


BLOCK_LIMIT = 24 * 1024
"""Weights up to which the fused gradient op is faster, measured (`docs/models.md`): about 55 units on 55 features."""


def lstm(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, *, backward: bool = False) -> tf.Tensor:
    """Outputs of every step, shape (steps, batch, hidden), from inputs of shape (steps, batch, features).

    `kernel`, shape (features + hidden, 4 * hidden), holds the input's rows, then the state's; `bias` has shape
    (4 * hidden,); gates in Keras's order i, f, g, o; the first state is zero. `backward` reads the inputs from the
    last step to the first; output k belongs to input k either way.
    """
    run = block_lstm if kernel.shape.num_elements() <= BLOCK_LIMIT else split_gradient_lstm
    if for_xla():
        run = xla_lstm
    run = other_lstm() or run
    return tf.reverse(run(tf.reverse(inputs, [0]), kernel, bias), [0]) if backward else run(inputs, kernel, bias)
