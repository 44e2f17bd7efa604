"""The fused updates of the parameter servers, against NumPy written from the papers' formulas."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cluster.engine.runtime import trace
from cluster.parameters import Layout, ParameterSpec
from ps_node.optimizers.adam import Adam
from ps_node.optimizers.optimizer import Optimizer
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import VectorState
from ps_node.shards import ParameterShards

import tensorflow as tf  # isort: skip

SIZE = 2100
STEPS = 40
Doubles = NDArray[np.float64]


def gradients() -> Doubles:
    """Of very different sizes, as those of a network are."""
    generator = np.random.default_rng(3)
    scales = 10.0 ** generator.uniform(-4, 1, size=SIZE)
    return generator.normal(size=(STEPS, SIZE)) * scales


def rates() -> Doubles:
    return 0.01 * (1.0 + np.sin(np.arange(STEPS)))


def start() -> Doubles:
    return np.random.default_rng(4).normal(size=SIZE).astype(np.float32).astype(np.float64)


def ours(optimizer: Optimizer, servers: int = 2) -> Doubles:
    """The parameters after STEPS pushes."""
    layout = Layout([ParameterSpec("weights", (SIZE,))])
    shards = ParameterShards(layout, VectorState(start().astype(np.float32)), optimizer, ["/device:CPU:0"] * servers)

    def push(gradient: Any, identifier: Any, rate: Any) -> Any:
        outcome = shards.push(gradient, tf.zeros([0]), identifier, rate, tf.zeros([servers], tf.int64))
        return outcome.fresh

    traced = trace(push, tf.TensorSpec([SIZE]), tf.TensorSpec([], tf.int64), tf.TensorSpec([]))
    for step, (gradient, rate) in enumerate(zip(gradients(), rates(), strict=True)):
        assert int(traced(gradient.astype(np.float32), np.int64(step), np.float32(rate))) == servers
    return shards.read().astype(np.float64)


def adam(weight_decay: float, beta_1: float, beta_2: float, epsilon: float) -> Doubles:
    """Kingma & Ba, algorithm 1 with the efficient order of section 2; decay as in Loshchilov & Hutter, algorithm 2."""
    parameters, first, second = start(), np.zeros(SIZE), np.zeros(SIZE)
    for step, (gradient, rate) in enumerate(zip(gradients(), rates(), strict=True), 1):
        parameters -= rate * weight_decay * parameters
        first = beta_1 * first + (1 - beta_1) * gradient
        second = beta_2 * second + (1 - beta_2) * gradient**2
        corrected = rate * np.sqrt(1 - beta_2**step) / (1 - beta_1**step)
        parameters -= corrected * first / (np.sqrt(second) + epsilon)
    return parameters


def momentum_sgd(momentum: float) -> Doubles:
    """Polyak's heavy ball as Sutskever et al. 2013, equations 1 and 2, write it."""
    parameters, velocity = start(), np.zeros(SIZE)
    for gradient, rate in zip(gradients(), rates(), strict=True):
        velocity = momentum * velocity - rate * gradient
        parameters += velocity
    return parameters


@pytest.mark.parametrize(
    ("optimizer", "reference"),
    [
        (Adam(), lambda: adam(0.0, 0.9, 0.999, 1e-7)),
        (Adam(beta_1=0.8, beta_2=0.95, epsilon=1e-3), lambda: adam(0.0, 0.8, 0.95, 1e-3)),
        (Adam(weight_decay=0.1), lambda: adam(0.1, 0.9, 0.999, 1e-7)),
        (MomentumSGD(), lambda: momentum_sgd(0.0)),
        (MomentumSGD(0.9), lambda: momentum_sgd(0.9)),
    ],
    ids=["adam", "adam-other-betas", "adamw", "sgd", "momentum"],
)
def test_it_does_what_its_paper_says(optimizer: Optimizer, reference: Callable[[], Doubles]) -> None:
    expected = reference()
    assert np.abs(expected - start()).max() > 0.01, "the reference must have moved"
    np.testing.assert_allclose(ours(optimizer), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("optimizer", [Adam(weight_decay=0.01), MomentumSGD(0.9)], ids=["adamw", "momentum"])
def test_the_number_of_servers_does_not_change_a_bit(optimizer: Optimizer) -> None:
    one = ours(optimizer, 1)
    for servers in (2, 3):
        np.testing.assert_array_equal(ours(optimizer, servers), one)


def test_momentum_alone_needs_a_slot() -> None:
    assert MomentumSGD().slot_names == ()
    assert MomentumSGD(0.5).slot_names == ("velocity",)
    assert len(Adam().slot_names) == 2
