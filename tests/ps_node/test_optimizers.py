"""The updates of the parameter servers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from cluster.jobs.modes.mode import optimizer_of
from core.engine.runtime import trace
from core.inventory.extensions import OPTIMIZERS
from core.lazy import keras, tf
from core.parameters import Layout, ParameterSpec
from ps_node.optimizers.adagrad import Adagrad
from ps_node.optimizers.adam import Adam, AdamW
from ps_node.optimizers.decay import spared_parts
from ps_node.optimizers.lion import Lion
from ps_node.optimizers.optimizer import Optimizer
from ps_node.optimizers.rmsprop import RMSprop
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import VectorState
from ps_node.shards import Header, ParameterShards

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
    """The parameters after STEPS pushes."""
    state = VectorState(
        np.concatenate([start(), np.zeros(LAYOUT.statistics_size)]).astype(np.float32)
    )
    shards = ParameterShards(LAYOUT, state, optimizer, ["/device:CPU:0"] * servers)

    def push(gradient: Any, identifier: Any, rate: Any) -> Any:
        header = Header(identifier, rate, tf.zeros([servers], tf.int64))
        return shards.push(gradient, tf.zeros([LAYOUT.statistics_size]), header).fresh

    traced = trace(push, tf.TensorSpec([SIZE]), tf.TensorSpec([], tf.int64), tf.TensorSpec([]))
    for step, (gradient, rate) in enumerate(zip(gradients(), rates(), strict=True)):
        assert int(traced(gradient.astype(np.float32), np.int64(step), np.float32(rate))) == servers
    return shards.read()[:SIZE].astype(np.float64)


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


AGAINST_KERAS = {
    "adam": (Adam(), lambda: keras.optimizers.Adam(), False),
    "adam with other betas": (
        Adam(beta_1=0.8, beta_2=0.95, epsilon=1e-3),
        lambda: keras.optimizers.Adam(beta_1=0.8, beta_2=0.95, epsilon=1e-3),
        False,
    ),
    "sgd": (MomentumSGD(), lambda: keras.optimizers.SGD(), False),
    "momentum": (MomentumSGD(0.9), lambda: keras.optimizers.SGD(momentum=0.9), False),
    "lion": (
        Lion(weight_decay=0.1, decay_biases=True),
        lambda: keras.optimizers.Lion(weight_decay=0.1),
        False,
    ),
    "lion without biases": (
        Lion(0.3, beta_1=0.8, beta_2=0.95),
        lambda: keras.optimizers.Lion(beta_1=0.8, beta_2=0.95, weight_decay=0.3),
        True,
    ),
    "lion without decay": (Lion(), lambda: keras.optimizers.Lion(), False),
    "adamw without biases": (
        AdamW(0.1, decay_biases=False),
        lambda: keras.optimizers.AdamW(weight_decay=0.1),
        True,
    ),
    "adamw": (AdamW(0.1), lambda: keras.optimizers.AdamW(weight_decay=0.1), False),
    "rmsprop": (RMSprop(), lambda: keras.optimizers.RMSprop(), False),
    "rmsprop with momentum": (
        RMSprop(0.8, 0.9, 1e-3),
        lambda: keras.optimizers.RMSprop(rho=0.8, momentum=0.9, epsilon=1e-3),
        False,
    ),
    "adagrad": (Adagrad(), lambda: keras.optimizers.Adagrad(initial_accumulator_value=0.0), False),
    "nesterov": (
        MomentumSGD(0.9, nesterov=True),
        lambda: keras.optimizers.SGD(momentum=0.9, nesterov=True),
        False,
    ),
}


@pytest.mark.parametrize(
    ("optimizer", "reference", "spared"), AGAINST_KERAS.values(), ids=AGAINST_KERAS
)
def test_it_does_what_keras_does(
    optimizer: Optimizer, reference: Callable[[], Any], spared: bool
) -> None:
    expected = in_keras(reference(), spared)
    assert np.abs(expected - start()).max() > 0.01, "the reference must have moved"
    # Adam divides small gradients by small roots: Keras and the paper's formula in doubles differ
    # by as much.
    tolerance = 2e-6 if isinstance(optimizer, Adam) else 1e-6
    for found in (ours(optimizer, 3), on_the_worker(optimizer)):
        assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


SAME_BITS = [
    Adam(weight_decay=0.01),
    AdamW(0.01, decay_biases=False),
    MomentumSGD(0.9),
    Lion(0.1),
    RMSprop(0.9, 0.5),
    Adagrad(),
]


@pytest.mark.parametrize("optimizer", SAME_BITS, ids=lambda optimizer: optimizer.name)
def test_the_number_of_servers_does_not_change_a_bit(optimizer: Optimizer) -> None:
    one = ours(optimizer, 1)
    for servers in (2, 3):
        assert_array_equal(ours(optimizer, servers), one)


def test_a_shard_knows_which_of_its_elements_decay() -> None:
    assert spared_parts(LAYOUT, (0, SIZE)) == ((900, True), (140, False), (1000, True), (60, False))
    cut = [spared_parts(LAYOUT, shard.trained) for shard in LAYOUT.shards(3)]
    assert cut == [
        ((900, True), (124, False)),
        ((16, False), (1000, True), (8, False)),
        ((52, False),),
    ]


def test_what_does_not_decay_keeps_every_bit_where_there_is_no_gradient() -> None:
    values = tf.constant(start(), tf.float32)
    after = (
        AdamW(0.5, decay_biases=False).within(LAYOUT, (0, SIZE)).shrunk(values, tf.constant(0.1))
    )
    same = np.equal(after.numpy().view(np.int32), values.numpy().view(np.int32))
    decays = np.concatenate([np.full(size, flag) for size, flag in spared_parts(LAYOUT, (0, SIZE))])
    assert_array_equal(same, ~decays)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_inventory_s_options_become_the_optimizer_s(name: str) -> None:
    found = OPTIMIZERS[name]
    options = found.Options()
    optimizer = optimizer_of(options)
    taken = {key for key in type(options).model_fields if key not in ("name", "learning_rate")}
    assert taken, "an optimizer without a knob"
    for key in taken:
        assert getattr(optimizer, key) == getattr(options, key)
