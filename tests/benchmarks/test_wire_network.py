"""The two sides of `benchmarks.wire` train the same network: same size, same parameters, same
function."""

import numpy as np

from benchmarks.wire.network import (
    PARAMETERS,
    PROBLEM,
    ResidualBidirectional,
    keras_model,
    keras_weights,
    windows,
)
from core.ground.lazy import tf
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
