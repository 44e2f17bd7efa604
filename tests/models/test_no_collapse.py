"""The thesis's 256-unit networks ended at one constant class; these learn to tell classes apart in a few steps."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from cluster.models.network import Network, build
from cluster.models.thesis import ThesisModel

CLASSES, PER_CLASS, STEPS, CHANNELS = 6, 4, 24, 9


def separable() -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Windows whose classes differ in rhythm and level, with noise."""
    draw = np.random.Generator(np.random.Philox(5))
    classes = np.repeat(np.arange(CLASSES, dtype=np.int32), PER_CLASS)
    time = np.arange(STEPS)[None, :, None]
    rhythm = np.sin(time * (0.2 + 0.25 * classes)[:, None, None] + draw.uniform(0, 6, (classes.size, 1, 1)))
    level = draw.standard_normal((CLASSES, CHANNELS))[classes][:, None, :]
    return (rhythm + level + 0.2 * draw.standard_normal((classes.size, STEPS, CHANNELS))).astype(np.float32), classes


def trained_predictions(network: Network, learning_rate: float, steps: int) -> tuple[list[float], NDArray[np.int64]]:
    """Adam for `steps` steps on one batch, the norm of the gradient cut at 15: losses, last classes."""
    batch, classes = separable()

    @tf.function
    def gradient(flat: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(flat)
            logits = network.apply(
                network.unpack(flat), batch, training=True, seed=tf.constant([0, 0], tf.int32)
            ).logits
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(classes, logits))
        return loss, tape.gradient(loss, flat), tf.argmax(logits, 1)

    flat = network.initial(0)
    first, second = np.zeros_like(flat), np.zeros_like(flat)
    losses: list[float] = []
    for step in range(1, steps + 1):
        loss, by_parameter, predicted = gradient(tf.constant(flat))
        by_parameter = by_parameter.numpy()
        by_parameter *= min(1.0, 15.0 / float(np.linalg.norm(by_parameter)))
        first += 0.1 * (by_parameter - first)
        second += 0.001 * (by_parameter**2 - second)
        flat = flat - learning_rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        losses.append(float(loss))
    result: NDArray[np.int64] = predicted.numpy()
    return losses, result


@pytest.mark.parametrize(
    ("config", "learning_rate"),
    [
        (ThesisModel(hidden=256), 1e-3),
        (ThesisModel(hidden=256, bidirectional=True, n_layers_in_highway=2, n_stacked_layers=2, batch_norm=True), 1e-3),
        (ThesisModel(hidden=32), 1e-2),
    ],
    ids=["256 plain", "256 residual bidirectional", "learning rate 0.01"],
)
def test_the_network_does_not_collapse_to_one_class(config: ThesisModel, learning_rate: float) -> None:
    network = build(config, window_steps=STEPS, channels=CHANNELS, classes=CLASSES)
    losses, predicted = trained_predictions(network, learning_rate, steps=25)
    assert losses[-1] < 0.5 * np.log(CLASSES)
    assert len(np.unique(predicted)) == CLASSES
