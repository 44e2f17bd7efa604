"""Networks of a test's size, what they answer, and their weights as Keras has them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.ground.lazy import tf
from core.inventory.fields import Choice
from core.models.network import BuiltIn, ForwardPass, Network, build, lstm_kernel

Vector = NDArray[np.float32]
TOLERANCE = 1e-5
SEED = (0, 0)


def small(config: Choice, steps: int = 10, channels: int = 4, classes: int = 3) -> BuiltIn:
    return build(config, window_steps=steps, channels=channels, classes=classes)


def close(found: Any, expected: Any, within: float = TOLERANCE, *, scaled: bool = False) -> None:
    """Compare arrays, or those of two lists or mappings; `scaled`: by each one's largest too."""
    if isinstance(expected, Mapping):
        assert found.keys() == expected.keys()
        found = [found[name] for name in expected]
        expected = [*expected.values()]
    if not isinstance(expected, list):
        found = [found]
        expected = [expected]
    for one, other in zip(found, expected, strict=True):
        largest = max(1.0, float(np.abs(other).max(initial=0.0))) if scaled else 1.0
        np.testing.assert_allclose(one, other, rtol=within, atol=within * largest)


def passed(
    network: Network,
    batch: Any,
    vector: Vector | None = None,
    training: bool = False,
    seed: tuple[int, int] = SEED,
) -> ForwardPass:
    """What a network makes of windows, by default with its initial values."""
    named = network.unpack(tf.constant(network.initial(0) if vector is None else vector))
    return network.apply(
        named, tf.constant(batch), training=training, seed=tf.constant(seed, tf.int32)
    )


def logits(network: Network, batch: Any, *given: Any, **more: Any) -> Vector:
    found: Vector = passed(network, batch, *given, **more).logits.numpy()
    return found


def as_keras(network: BuiltIn, vector: Vector) -> list[Vector]:
    """The parts of the vector in its order; Keras has two kernels where an LSTM of ours has one."""
    found = []
    for name, value in network.layout.unpack(vector).items():
        if network._initializers[name] is lstm_kernel:
            hidden = value.shape[1] // 4
            found += [value[:-hidden], value[-hidden:]]
        else:
            found.append(value)
    return found


def drawn(seed: int, *shape: int) -> Vector:
    return np.random.Generator(np.random.Philox(seed)).standard_normal(shape).astype(np.float32)


def perturbed(network: Network, seed: int = 1) -> Vector:
    """Initial values plus noise, so that biases, scales and shifts count too."""
    return network.initial(seed) + np.float32(0.1) * drawn(seed, network.layout.size)


def windows(batch: int, network: Network, seed: int = 2) -> Vector:
    return drawn(seed, batch, *network.problem.input_shape)


def gradient_function(network: Network, *, squares: bool = False) -> Callable[..., Any]:
    """Traces logits, and the gradient of their sum or of the sum of their squares."""

    def run(flat: tf.Tensor, batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(flat)
            found = network.apply(network.unpack(flat), batch, training=True, seed=SEED).logits
            loss = tf.reduce_sum(found * found if squares else found)
        return found, tape.gradient(loss, flat)

    return run
