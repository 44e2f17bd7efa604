"""The two sides of `benchmarks.wire` train the same network: same size, same parameters, same
function."""

import numpy as np
import pytest

from benchmarks.wire.network import (
    PARAMETERS,
    PROBLEM,
    ResidualBidirectional,
    keras_model,
    keras_weights,
    windows,
)
from core.ground.lazy import keras, tf
from core.models.network import Problem
from tests.core.models.yardstick import TOLERANCE, perturbed

SMALL = Problem((9, PROBLEM.channels), PROBLEM.classes)


def test_both_have_29182_parameters() -> None:
    assert ResidualBidirectional().layout.trained_size == PARAMETERS
    assert (
        sum(int(np.prod(variable.shape)) for variable in keras_model().trainable_variables)
        == PARAMETERS
    )


def test_both_compute_the_same_logits() -> None:
    network = ResidualBidirectional(SMALL)
    model = keras_model(SMALL)
    vector = perturbed(network)
    model.set_weights(keras_weights(network, vector))
    batch, _ = windows(4, SMALL)
    ours = network.apply(
        network.unpack(tf.constant(vector)),
        tf.constant(batch),
        training=True,
        seed=tf.constant([0, 0]),
    ).logits
    np.testing.assert_allclose(ours, model(batch, training=True), rtol=TOLERANCE, atol=TOLERANCE)


def losses(model: object, steps: int) -> list[float]:
    """Of some steps as the strategy takes them, on this process's own device."""
    from benchmarks.wire.in_keras import batches, step_of

    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)  # type: ignore[attr-defined]
    step = step_of(tf.distribute.get_strategy(), model, optimizer, read_once=True)
    iterator = iter(batches())
    return [float(step(iterator)) for _ in range(steps)]


def test_the_strategy_trains_the_same_with_our_kernels_as_with_keras_layers() -> None:
    """What `stock_our_kernels` changes in `benchmarks.links` is the time of a step, and nothing
    else."""
    network = ResidualBidirectional()
    model = keras_model()
    model.set_weights(keras_weights(network, network.initial(0)))
    from benchmarks.wire.in_keras import OurKernels

    ours = OurKernels(network)
    assert ours.count_params() == model.count_params()
    found = losses(ours, 4)
    assert found == pytest.approx(losses(model, 4), rel=1e-4)
    assert found[-1] < found[0]
