"""Answers wider than the targets, with an app's own loss: figures leave out what has no meaning.

Functions of TensorFlow's own library are no unknown ops.
"""

from typing import Any

import numpy as np
import pytest

from cluster.apps.app import AppError
from core.ground.lazy import keras, tf
from core.inventory.training import TrainJob
from tests.cluster.apps.kit import SEED, figures_of, network, numbers
from worker_node.gradient import GradientOfBatch

BATCH = 6


def quantiles(y: Any, outputs: Any) -> Any:
    error = y[:, :1] - outputs
    return tf.maximum(error * [0.1, 0.5, 0.9], error * [-0.9, -0.5, -0.1])


def connectionist_temporal_classification(y: Any, outputs: Any) -> Any:
    """Of frames of classes, the first of which is the blank."""
    labels = tf.cast(y, tf.int32)
    lengths = tf.ones_like(labels[:, 0])
    return tf.nn.ctc_loss(
        labels, outputs, 2 * lengths, 9 * lengths, logits_time_major=False, blank_index=0
    )


def dense(width: int) -> Any:
    def model(shape: tuple[int, ...], outputs: int) -> Any:
        return keras.Sequential([keras.Input(shape), keras.layers.Dense(width)])

    return model


def frames(shape: tuple[int, ...], outputs: int) -> Any:
    return keras.Sequential(
        [keras.Input(shape), keras.layers.Reshape((9, 1)), keras.layers.Dense(5)]
    )


@pytest.mark.parametrize(
    ("model", "loss", "targets"),
    [
        (dense(3), quantiles, 1),
        (frames, connectionist_temporal_classification, 2),
    ],
)
def test_a_loss_may_take_apart_what_no_figure_compares(model: Any, loss: Any, targets: int) -> None:
    found = network(numbers(targets, 9), model=model, loss=loss)
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(size=(BATCH, 9)), tf.float32)
    y = tf.constant(random.integers(1, 3, (BATCH, targets)), tf.float32)
    vector = found.initial(SEED)
    no_seed = tf.zeros([2], tf.int32)
    answers = found.apply(found.unpack(vector), x, training=False, seed=no_seed).logits
    figures = figures_of(found, y, answers)
    assert np.isfinite(figures["loss"])
    assert figures["others"] == {}

    job = TrainJob(batch_size=BATCH, slots=1, clip_norm=None, label_smoothing=0.0)
    gradient_of = GradientOfBatch(found, job)

    @tf.function(autograph=False)
    def step(trained: Any, rest: Any) -> Any:
        result = gradient_of(trained, rest, x, y, tf.constant([1, 2]))
        return result.loss, result.gradient

    mean, gradient = step(*map(tf.constant, np.split(vector, [found.layout.trained_size])))
    assert float(mean) == pytest.approx(figures["loss"], rel=1e-5)
    assert float(tf.norm(gradient)) > 0


def test_a_loss_that_mixes_up_its_examples_is_refused() -> None:
    def loss(y: Any, outputs: Any) -> Any:
        return tf.reshape(outputs, [-1])

    with pytest.raises(AppError, match=r"own\.py: loss\(\): .* got 12 values for 4 examples"):
        network(numbers(1, 9), model=dense(3), loss=loss)
