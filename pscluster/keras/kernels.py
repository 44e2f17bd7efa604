"""One LSTM over whole sequences from any first state, in two kernels; shapes alone choose, the same on every machine.

`fused` is TensorFlow's op over the whole sequence, forwards and backwards: the least to start, so the fastest for
narrow layers. `chunked` is a loop over chunks of steps. It multiplies the inputs with their weights a chunk at a time,
takes every gate from one tanh, because sigmoid(x) = (1 + tanh(x / 2)) / 2 and a vectorized tanh costs a quarter of
TensorFlow's sigmoid, and sums the gradients of the weights a chunk at a time, where Keras does all three at every step.
Both are differentiable once.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from cluster.models.lstm import block_forward, operands, swap


class State(NamedTuple):
    """Output and cell of one step, each of shape (batch, units)."""

    output: tf.Tensor
    cell: tf.Tensor


class Weights(NamedTuple):
    """Keras's: kernel (features, 4 units), recurrent kernel (units, 4 units), bias (4 units,), gates i, f, g, o."""

    kernel: tf.Tensor
    recurrent: tf.Tensor
    bias: tf.Tensor


FUSED_LIMIT = 8 * 1024
"""Weights up to which the fused op is faster at any batch, measured with `benchmarks.keras_lstm`."""

CHUNK = 16
"""Steps of one turn of the loop, at most."""

TURNS_AT_ONCE = 4
"""Turns that may overlap. Cells wait for each other, but one turn's products of inputs and of weight gradients are
computed beside the next one's cells: with two cores a step at 128 units takes 0.79 of the time (measured)."""


def lstm(inputs: tf.Tensor, first: State, weights: Weights, *, every_step: bool) -> tuple[tf.Tensor | None, State]:
    """Outputs of every step, shape (steps, batch, units), or None, and the last state.

    The inputs have shape (steps, batch, features), all tensors are float32. Features and units are known when this is
    traced, steps and batch need not be.
    """
    size = (inputs.shape[2] + weights.bias.shape[0] // 4) * weights.bias.shape[0]
    # Without a graph every op of the loop is a call from Python; the fused op is one.
    if size <= FUSED_LIMIT or tf.executing_eagerly():
        outputs, cell = fused(inputs, *first, *weights)
        return outputs if every_step else None, State(outputs[-1], cell)
    if every_step:
        outputs, cell = chunked(inputs, *first, *weights)
        return outputs, State(outputs[-1], cell)
    return None, State(*chunked_last(inputs, *first, *weights))


Gradient = Callable[..., tuple[tf.Tensor, ...]]


@tf.autograph.experimental.do_not_convert  # autograph would look through custom_gradient at the bare function
@tf.custom_gradient
def fused(
    inputs: tf.Tensor, output: tf.Tensor, cell: tf.Tensor, kernel: tf.Tensor, recurrent: tf.Tensor, bias: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor], Gradient]:
    """Outputs of every step and the last cell; `output` and `cell` are the first state."""
    both, features = tf.concat([kernel, recurrent], 0), inputs.shape[2]
    run = block_forward(inputs, both, bias, (output, cell))

    def gradient(by_outputs: tf.Tensor, by_cell: tf.Tensor) -> tuple[tf.Tensor, ...]:
        by_cells = tf.concat([tf.zeros_like(run.cs[1:]), by_cell[None]], 0)
        found = tf.raw_ops.BlockLSTMGradV2(
            **operands(inputs, both, bias, (output, cell)), **run._asdict(), cs_grad=by_cells, h_grad=by_outputs
        )
        by_kernel, by_recurrent = found.w_grad[:features], found.w_grad[features:]
        return found.x_grad, found.h_prev_grad, found.cs_prev_grad, by_kernel, by_recurrent, found.b_grad

    return (run.h, run.cs[-1]), gradient


@tf.autograph.experimental.do_not_convert
@tf.custom_gradient
def chunked(
    inputs: tf.Tensor, output: tf.Tensor, cell: tf.Tensor, kernel: tf.Tensor, recurrent: tf.Tensor, bias: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor], Gradient]:
    """Same arguments, results and gradients as `fused`."""
    return _chunked(inputs, State(output, cell), Weights(kernel, recurrent, bias), every_step=True)


@tf.autograph.experimental.do_not_convert
@tf.custom_gradient
def chunked_last(
    inputs: tf.Tensor, output: tf.Tensor, cell: tf.Tensor, kernel: tf.Tensor, recurrent: tf.Tensor, bias: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor], Gradient]:
    """The last output and the last cell of `chunked`, which needs no memory for the others in one piece."""
    return _chunked(inputs, State(output, cell), Weights(kernel, recurrent, bias), every_step=False)


def _chunked(
    inputs: tf.Tensor, first: State, weights: Weights, *, every_step: bool
) -> tuple[tuple[tf.Tensor, tf.Tensor], Gradient]:
    plan = _Plan(inputs, weights.recurrent.shape[0])
    last, kept = _forwards(plan, first, weights)

    def gradient(by_outputs: tf.Tensor, by_cell: tf.Tensor) -> tuple[tf.Tensor, ...]:
        swapped = Weights(*(swap(each) for each in weights))
        by_every, by_last = (by_outputs, tf.zeros_like(by_cell)) if every_step else (None, by_outputs)
        found, gates = _backwards(plan, first, swapped, kept, by_every, State(by_last, by_cell))
        by_inputs = plan.over_gates(gates, swapped.kernel)
        return by_inputs, *found.state, *(swap(each) for each in found.weights)

    return (kept.outputs.stack() if every_step else last.output, last.cell), gradient


class _Kept(NamedTuple):
    """What every step leaves for the gradient, arrays of (batch, units): the gates, tanh of the cell, cell, output."""

    i: tf.TensorArray
    f: tf.TensorArray
    g: tf.TensorArray
    o: tf.TensorArray
    squashed: tf.TensorArray
    cells: tf.TensorArray
    outputs: tf.TensorArray


class _Found(NamedTuple):
    """The loss's gradients so far: by the state before the steps that were done, and by the weights."""

    state: State
    weights: Weights


class _Plan:
    """The steps in whole chunks and a shorter rest; a number of steps that is unknown makes chunks of one step."""

    def __init__(self, inputs: tf.Tensor, units: int) -> None:
        known = inputs.shape[0]
        self.inputs, self.units, self.features = inputs, units, inputs.shape[2]
        self.steps = tf.shape(inputs)[0] if known is None else known
        self.chunk = 1 if known is None else min(CHUNK, known)
        self.chunks = self.steps // self.chunk
        self.rest = 0 if known is None else known % self.chunk

    def over_chunks(
        self, body: Callable[..., tuple[object, ...]], *values: object, backwards: bool = False
    ) -> tuple[tf.TensorArray, ...]:
        """`body(k, *values)` for every whole chunk k, in order or from the last to the first."""
        first, way = (self.chunks - 1, -1) if backwards else (0, 1)
        turned = tf.while_loop(
            lambda k, *_: tf.logical_and(k >= 0, k < self.chunks),
            lambda k, *now: (k + way, *body(k, *now)),
            [first, *values],
            maximum_iterations=self.chunks,
            parallel_iterations=TURNS_AT_ONCE,
        )
        return tuple(turned[1:])

    def rows(self, begin: tf.Tensor, steps: int) -> tf.Tensor:
        """The inputs of these steps, shape (steps * batch, features)."""
        return tf.reshape(self.inputs[begin : begin + steps], [-1, self.features])

    def over_gates(self, gates: tf.TensorArray, kernel: tf.Tensor) -> tf.Tensor:
        """The loss by the inputs: a loop of its own, which a graph that does not ask for it drops."""
        rows = tf.TensorArray(tf.float32, self.chunks, element_shape=[None, self.features])

        def body(k: tf.Tensor, written: tf.TensorArray) -> tuple[object, ...]:
            return (written.write(k, tf.matmul(gates.read(k), kernel, transpose_b=True)),)

        (rows,) = self.over_chunks(body, rows)
        found = rows.concat()
        if self.rest:
            found = tf.concat([found, tf.matmul(gates.read(self.chunks), kernel, transpose_b=True)], 0)
        return tf.reshape(found, tf.shape(self.inputs))


def _forwards(plan: _Plan, first: State, weights: Weights) -> tuple[State, _Kept]:
    units = plan.units
    # The gates that are sigmoids read half of what the weights give: see the module's text.
    half = tf.constant([0.5] * (2 * units) + [1.0] * units + [0.5] * units)
    kernel, recurrent, bias = (each * half for each in weights)

    def steps_of(begin: tf.Tensor, steps: int, state: State, kept: _Kept) -> tuple[State, _Kept]:
        own = tf.nn.bias_add(tf.matmul(plan.rows(begin, steps), kernel), bias)
        for step, of_inputs in enumerate(tf.unstack(tf.reshape(own, [steps, -1, 4 * units]), steps)):
            gates = tf.tanh(tf.matmul(state.output, recurrent) + of_inputs)
            i, f, g, o = tf.split(gates, 4, 1)
            i, f, o = (gate * 0.5 + 0.5 for gate in (i, f, o))
            cell = f * state.cell + i * g
            squashed = tf.tanh(cell)
            state = State(o * squashed, cell)
            values = (i, f, g, o, squashed, *reversed(state))
            kept = _Kept(*(array.write(begin + step, value) for array, value in zip(kept, values, strict=True)))
        return state, kept

    def body(k: tf.Tensor, output: tf.Tensor, cell: tf.Tensor, *kept: tf.TensorArray) -> tuple[object, ...]:
        state, kept_now = steps_of(k * plan.chunk, plan.chunk, State(output, cell), _Kept(*kept))
        return (*state, *kept_now)

    shape = [plan.inputs.shape[1], units]
    empty = [tf.TensorArray(tf.float32, plan.steps, element_shape=shape, clear_after_read=False) for _ in _Kept._fields]
    output, cell, *arrays = plan.over_chunks(body, *first, *empty)
    state, kept = State(output, cell), _Kept(*arrays)
    return steps_of(plan.chunks * plan.chunk, plan.rest, state, kept) if plan.rest else (state, kept)


def _backwards(
    plan: _Plan, first: State, weights: Weights, kept: _Kept, by_every: tf.Tensor | None, by_last: State
) -> tuple[_Found, tf.TensorArray]:
    """The gradients by first state and weights, and those by the gates' inputs, an array with an item a chunk.

    `by_every` is the loss by every output, shape (steps, batch, units), `by_last` what comes to that of the last state.
    Gates are in the order i, g, f, o here, that of the fused
    gradient of one cell. Without peepholes this op takes nothing but shapes from weights, inputs, state and cell.
    """
    zeros, no_peephole = tf.zeros_like(first.cell), tf.zeros([plan.units])
    onto_state = tf.transpose(weights.recurrent)

    def before(array: tf.TensorArray, at: tf.Tensor, start: tf.Tensor, may_be_first: bool) -> tf.Tensor:
        if not may_be_first:
            return array.read(at - 1)
        return tf.cond(tf.equal(at, 0), lambda: start, lambda: array.read(tf.maximum(at - 1, 0)))

    def steps_of(
        begin: tf.Tensor, steps: int, chunk: tf.Tensor, found: _Found, gates: tf.TensorArray
    ) -> tuple[_Found, tf.TensorArray]:
        by_output, by_cell = found.state
        own = None if by_every is None else tf.unstack(by_every[begin : begin + steps], steps)
        rows: list[tf.Tensor] = []
        states: list[tf.Tensor] = []
        for step in reversed(range(steps)):
            at, may_be_first = begin + step, step == 0
            by_output = by_output if own is None else by_output + own[step]
            made = tf.raw_ops.LSTMBlockCellGrad(
                x=zeros[:, :0], h_prev=zeros, w=weights.recurrent, b=weights.bias, cs=zeros,
                wci=no_peephole, wcf=no_peephole, wco=no_peephole, use_peephole=False,
                cs_prev=before(kept.cells, at, first.cell, may_be_first),
                i=kept.i.read(at), f=kept.f.read(at), o=kept.o.read(at), ci=kept.g.read(at),
                co=kept.squashed.read(at), cs_grad=by_cell, h_grad=by_output,
            )  # fmt: skip
            by_output, by_cell = tf.matmul(made.dicfo, onto_state), made.cs_prev_grad
            rows.insert(0, made.dicfo)
            states.insert(0, before(kept.outputs, at, first.output, may_be_first))
        all_rows = tf.concat(rows, 0)
        sums = Weights(
            found.weights.kernel + tf.matmul(plan.rows(begin, steps), all_rows, transpose_a=True),
            found.weights.recurrent + tf.matmul(tf.concat(states, 0), all_rows, transpose_a=True),
            found.weights.bias + tf.raw_ops.BiasAddGrad(out_backprop=all_rows),
        )
        return _Found(State(by_output, by_cell), sums), gates.write(chunk, all_rows)

    def body(k: tf.Tensor, *now: tf.Tensor) -> tuple[object, ...]:
        found, gates = _Found(State(*now[:2]), Weights(*now[2:5])), now[5]
        found, gates = steps_of(k * plan.chunk, plan.chunk, k, found, gates)
        return (*found.state, *found.weights, gates)

    found = _Found(by_last, Weights(*(tf.zeros_like(each) for each in weights)))
    turns = plan.chunks + (1 if plan.rest else 0)
    shape = [None, 4 * plan.units]  # the rest has fewer rows
    gates = tf.TensorArray(tf.float32, turns, element_shape=shape, infer_shape=False, clear_after_read=False)
    if plan.rest:
        found, gates = steps_of(plan.chunks * plan.chunk, plan.rest, plan.chunks, found, gates)
    output, cell, *sums, gates = plan.over_chunks(body, *found.state, *found.weights, gates, backwards=True)
    return _Found(State(output, cell), Weights(*sums)), gates
