"""Dropout has no state: the seed decides the mask and nothing else does."""

import numpy as np

from core.ground.lazy import tf
from core.models.layers import Dropout
from core.models.network import build
from core.models.residual import ResidualModel
from core.models.tensorflow_operations import TensorFlowOperations
from tests.core.models.yardstick import Vector, windows


def masked(*seed: int, site: int = 0, training: bool = True) -> Vector:
    ops = TensorFlowOperations({}, training=training, seed=tf.constant(seed, tf.int32))
    result: Vector = Dropout(0.85, site)(ops, tf.ones([50, 200])).numpy()
    return result


def test_equal_seeds_drop_equal_elements_and_others_do_not() -> None:
    assert (masked(1, 2) == masked(1, 2)).all()
    for other in (masked(1, 3), masked(2, 2), masked(1, 2, site=1)):
        assert (masked(1, 2) != other).any()


def test_the_asked_share_is_kept_and_scaled_up() -> None:
    values = masked(4, 5)
    kept = values > 0
    np.testing.assert_allclose(values[kept], 1 / 0.85, rtol=1e-6)
    deviation = np.sqrt(0.85 * 0.15 / values.size)
    assert abs(kept.mean() - 0.85) < 5 * deviation


def test_a_networks_steps_repeat_exactly_and_evaluation_ignores_the_seed() -> None:
    config = ResidualModel(hidden=8, layers=2)
    network = build(config, window_steps=10, channels=4, classes=3, keep_probability=0.5)
    parameters = network.unpack(tf.constant(network.initial(0)))
    batch = windows(4, network)

    @tf.function
    def logits(training: bool, seed: tf.Tensor) -> tf.Tensor:
        return network.apply(parameters, batch, training=training, seed=seed).logits

    one, other = tf.constant([3, 1], tf.int32), tf.constant([3, 2], tf.int32)
    assert (logits(True, one).numpy() == logits(True, one).numpy()).all()
    assert (logits(True, one).numpy() != logits(True, other).numpy()).any()
    assert (logits(False, one).numpy() == logits(False, other).numpy()).all()
