"""Batch norm: a step's own statistics in training, the running ones in evaluation."""

import numpy as np
import tensorflow as tf

from cluster.models.layers import StepBatchNorm
from cluster.models.network import Network, build
from cluster.models.thesis import ThesisModel
from tests.models.yardstick import perturbed, windows

SEED = tf.constant([0, 0], tf.int32)
STEPS, BATCH, FEATURES = 7, 5, 6
INPUTS = np.random.Generator(np.random.Philox(1)).normal(2.0, 3.0, (STEPS, BATCH, FEATURES)).astype(np.float32)
PARAMETERS = {
    "norm/scale": tf.constant([0.5]),
    "norm/shift": tf.constant([0.25]),
    "norm/mean": tf.constant(np.linspace(-1, 1, STEPS), tf.float32),
    "norm/variance": tf.constant(np.linspace(1, 4, STEPS), tf.float32),
}


def network() -> Network:
    config = ThesisModel(hidden=8, n_stacked_layers=2, n_layers_in_highway=2, batch_norm=True)
    return build(config, window_steps=10, channels=4, classes=3)


def test_training_normalizes_each_step_over_batch_and_features() -> None:
    outputs, statistics = StepBatchNorm("norm", STEPS)(PARAMETERS, INPUTS, training=True)
    mean, variance = INPUTS.mean((1, 2)), INPUTS.var((1, 2))
    expected = (INPUTS - mean[:, None, None]) / np.sqrt(variance + 1e-3)[:, None, None] * 0.5 + 0.25
    np.testing.assert_allclose(outputs.numpy(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(statistics["norm/mean"].numpy(), mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(statistics["norm/variance"].numpy(), variance, rtol=1e-5)


def test_evaluation_uses_the_running_statistics() -> None:
    outputs, statistics = StepBatchNorm("norm", STEPS)(PARAMETERS, INPUTS, training=False)
    mean, variance = np.linspace(-1, 1, STEPS), np.linspace(1, 4, STEPS)
    expected = (INPUTS - mean[:, None, None]) / np.sqrt(variance + 1e-3)[:, None, None] * 0.5 + 0.25
    np.testing.assert_allclose(outputs.numpy(), expected, rtol=1e-5, atol=1e-5)
    assert statistics == {}


def test_a_layer_has_one_scale_and_shift_and_a_tail_of_untrained_statistics() -> None:
    layout = network().layout
    norms = {slot.spec.name: slot.spec for slot in layout.slots if "/norm/" in slot.spec.name}
    assert {name: spec.shape for name, spec in norms.items() if spec.trained} == {
        f"layer{k}/norm/{part}": (1,) for k in range(2) for part in ("scale", "shift")
    }
    assert {name: spec.shape for name, spec in norms.items() if not spec.trained} == {
        f"layer{k}/norm/{part}": (10,) for k in range(2) for part in ("mean", "variance")
    }
    assert layout.statistics_size == 2 * 2 * 10


def test_a_network_measures_exactly_its_untrained_parameters() -> None:
    net = network()
    parameters = net.unpack(tf.constant(perturbed(net)))
    output = net.apply(parameters, windows(5, net), training=True, seed=SEED)
    untrained = {slot.spec.name: slot.spec.shape for slot in net.layout.slots if not slot.spec.trained}
    assert {name: tuple(value.shape) for name, value in output.statistics.items()} == untrained


def test_in_evaluation_a_windows_logits_do_not_depend_on_its_batch() -> None:
    """The reference evaluates with the test batch's own statistics: there they would."""
    net = network()
    vector = net.initial(3)
    parameters = net.unpack(tf.constant(vector))
    batch = windows(5, net)
    together = net.apply(parameters, batch, training=False, seed=SEED).logits.numpy()
    alone = net.apply(parameters, batch[:1], training=False, seed=SEED).logits.numpy()
    np.testing.assert_allclose(alone[0], together[0], rtol=1e-5, atol=1e-6)

    trained = net.apply(parameters, batch, training=True, seed=SEED).logits.numpy()
    assert np.abs(trained - together).max() > 1e-3
