"""The updates of the parameter servers."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from cluster.jobs.modes import optimizer_of
from core.engine.runtime import trace
from core.ground.lazy import keras, tf
from core.inventory.extensions import OPTIMIZERS
from core.parameters import BLOCK, Layout, ParameterSpec
from ps_node.optimizers import Optimizer
from ps_node.optimizers.adam import Adam
from ps_node.optimizers.lamb import LambOptions
from ps_node.shard import VectorState
from ps_node.shards import Header, ParameterShards
from tests.tables import table

SIZE = 2100
STEPS = 40
LAYOUT = Layout(
    [
        ParameterSpec("kernel", (15, 60)),
        ParameterSpec("bias", (60,), decayed=False),
        ParameterSpec("scale", (80,), decayed=False),
        ParameterSpec("mean", (1100,), trained=False),
        ParameterSpec("other", (1000,)),
        ParameterSpec("shift", (60,), decayed=False),
    ]
)
"""Two of its tensors lie in two blocks, and so in two shards of three."""
Doubles = NDArray[np.float64]


def gradients() -> Doubles:
    """Draw values of very different sizes, as a network's are."""
    generator = np.random.default_rng(3)
    scales = 10.0 ** generator.uniform(-4, 1, size=SIZE)
    return generator.normal(size=(STEPS, SIZE)) * scales


def rates() -> Doubles:
    return 0.01 * (1.0 + np.sin(np.arange(STEPS)))


def start() -> Doubles:
    return np.random.default_rng(4).normal(size=SIZE).astype(np.float32).astype(np.float64)


def ours(optimizer: Optimizer, servers: int = 2) -> Doubles:
    """The parameters and statistics after STEPS pushes."""
    state = VectorState(
        np.concatenate([start(), np.zeros(LAYOUT.statistics_size)]).astype(np.float32)
    )
    shards = ParameterShards(LAYOUT, state, optimizer, ["/device:CPU:0"] * servers)

    def push(gradient: Any, identifier: Any, rate: Any) -> Any:
        header = Header(identifier, rate, tf.zeros([servers], tf.int64))
        return shards.push(gradient, gradient[: LAYOUT.statistics_size], header).fresh

    traced = trace(push, tf.TensorSpec([SIZE]), tf.TensorSpec([], tf.int64), tf.TensorSpec([]))
    for step, (gradient, rate) in enumerate(zip(gradients(), rates(), strict=True)):
        assert int(traced(gradient.astype(np.float32), np.int64(step), np.float32(rate))) == servers
    return shards.read().astype(np.float64)


def on_the_worker(optimizer: Optimizer) -> Doubles:
    """Take the steps through `stepped`, as `mode: local` does."""
    parameters = tf.constant(start(), tf.float32)
    slots = tf.zeros([len(optimizer.slot_names), SIZE])
    placed = optimizer.within(LAYOUT, (0, SIZE))
    for step, (gradient, rate) in enumerate(zip(gradients(), rates(), strict=True)):
        given = (
            tf.constant(gradient, tf.float32),
            tf.constant(rate, tf.float32),
            tf.constant(step, tf.int64),
        )
        parameters, slots = placed.stepped(parameters, slots, *given)
    ended: Doubles = parameters.numpy().astype(np.float64)
    return ended


def in_keras(optimizer: Any, spared: bool = False) -> Doubles:
    """Take the steps with Keras's optimizer on one variable a tensor.

    `spared` keeps the decay from what is not `decayed`.
    """
    slots = [slot for slot in LAYOUT.slots if slot.spec.trained]
    parts = [slice(slot.offset, slot.offset + slot.spec.size) for slot in slots]
    variables = [keras.Variable(start()[part].astype(np.float32)) for part in parts]
    if spared:
        kept = zip(variables, slots, strict=True)
        optimizer.exclude_from_weight_decay(
            var_list=[variable for variable, slot in kept if not slot.spec.decayed]
        )
    for gradient, rate in zip(gradients(), rates(), strict=True):
        optimizer.learning_rate = np.float32(rate)
        given = [tf.constant(gradient[part], tf.float32) for part in parts]
        optimizer.apply_gradients(list(zip(given, variables, strict=True)))
    ended: Doubles = np.concatenate([np.asarray(each) for each in variables]).astype(np.float64)
    return ended


AGAINST_KERAS = table("ps_node/optimizers", "against keras")


def optimizer_by(options: dict[str, Any]) -> Optimizer:
    return optimizer_of(OPTIMIZERS[options["name"]].Options(**options))


@pytest.mark.parametrize("name", AGAINST_KERAS)
def test_it_does_what_keras_does(name: str) -> None:
    options, reference, reference_options = AGAINST_KERAS[name]
    optimizer = optimizer_by(options)
    spared = name.endswith("without biases")
    expected = in_keras(getattr(keras.optimizers, reference)(**reference_options), spared)
    assert np.abs(expected - start()).max() > 0.01, "the reference must have moved"
    # Adam divides small gradients by small roots: Keras and the paper's formula in doubles differ
    # by as much.
    tolerance = 2e-6 if isinstance(optimizer, Adam) else 1e-6
    for found in (ours(optimizer, 3)[:SIZE], on_the_worker(optimizer)):
        assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", table("ps_node/optimizers", "same bits"))
def test_the_number_of_servers_does_not_change_a_bit(name: str) -> None:
    optimizer = optimizer_by(AGAINST_KERAS[name][0])
    one = ours(optimizer, 1)
    for servers in (2, 3):
        assert_array_equal(ours(optimizer, servers), one)


def lamb_by_formula(options: LambOptions) -> Doubles:
    """Algorithm 2 of arXiv 1904.00962 in float64, for what each block has of each tensor."""
    decays = np.concatenate([np.full(s.spec.size, s.spec.decayed) for s in LAYOUT.slots])[:SIZE]
    tensors = np.repeat(np.arange(len(LAYOUT.slots)), [s.spec.size for s in LAYOUT.slots])[:SIZE]
    borders = np.flatnonzero(np.diff(tensors) | (np.arange(1, SIZE) % BLOCK == 0)) + 1
    weights = start()
    first = np.zeros(SIZE)
    second = np.zeros(SIZE)
    for step, (gradient, rate) in enumerate(zip(gradients(), rates(), strict=True), 1):
        first = options.beta_1 * first + (1 - options.beta_1) * gradient
        second = options.beta_2 * second + (1 - options.beta_2) * gradient**2
        change = first / (1 - options.beta_1**step)
        change /= np.sqrt(second / (1 - options.beta_2**step)) + options.epsilon
        change += options.weight_decay * decays * weights
        for layer in np.split(np.arange(SIZE), borders):
            if decays[layer[0]]:
                change[layer] *= np.linalg.norm(weights[layer]) / np.linalg.norm(change[layer])
        weights = weights - rate * change
    return weights


def test_lamb_paces_each_layer_by_its_weights() -> None:
    options = LambOptions(beta_1=0.8, beta_2=0.95, epsilon=1e-12, weight_decay=0.1)
    optimizer = optimizer_of(options)
    expected = lamb_by_formula(options)
    assert np.abs(expected - start()).max() > 0.01, "the reference must have moved"
    one = ours(optimizer, 1)
    for servers in (2, 3):
        assert_array_equal(ours(optimizer, servers), one)
    for found in (one[:SIZE], on_the_worker(optimizer)):
        assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_lamb_moves_weights_of_zero_as_adam_does() -> None:
    lamb = optimizer_of(LambOptions(weight_decay=0.0)).within(LAYOUT, (0, SIZE))
    nothing = tf.zeros([SIZE])
    arguments = (tf.zeros([2, SIZE]), tf.ones([SIZE]), tf.constant(0.5), tf.constant(0, tf.int64))
    moved = np.asarray(lamb.stepped(nothing, *arguments)[0])
    assert_allclose(moved, np.full(SIZE, -0.5), rtol=1e-4)
