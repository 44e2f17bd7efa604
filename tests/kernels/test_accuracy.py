"""Gradients and answers beside TensorFlow's in float64."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from core.ground.lazy import tf
from core.models.tensorflow_operations import TensorFlowOperations
from tests.kernels.networks import CLASSES, GROUPED, MODELS, Case

CLOSE = 4e-6
"""The largest difference, as a share of the largest element."""


def lstm(inputs: Any, kernel: Any, bias: Any) -> Any:
    """Compute an LSTM step by step (Hochreiter & Schmidhuber 1997, with Gers's forget gate)."""
    hidden = bias.shape[0] // 4
    output = cell = tf.zeros([inputs.shape[1], hidden], inputs.dtype)
    outputs = []
    for step in tf.unstack(inputs):
        gates = tf.matmul(tf.concat([step, output], 1), kernel) + bias
        i, f, g, o = tf.split(gates, 4, 1)
        cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
        output = tf.sigmoid(o) * tf.tanh(cell)
        outputs.append(output)
    return tf.stack(outputs)


def logits_in_float64(case: Case, vector: Any, windows: Any, *, training: bool) -> Any:
    layout = case.network.layout
    parts = tf.split(vector, [slot.spec.size for slot in layout.slots])
    named = {
        slot.spec.name: tf.reshape(part, slot.spec.shape)
        for slot, part in zip(layout.slots, parts, strict=True)
    }
    ops = TensorFlowOperations(named, training=training, lstm=lstm)
    return case.network.logits(ops, windows)


def loss_in_float64(case: Case, vector: Any) -> Any:
    batch, recipe = case.batch, case.recipe
    borders = recipe.borders()[:: GROUPED.get(case.name, recipe.slots)]
    windows = tf.constant(batch.windows, tf.float64)
    logits = tf.concat(
        [
            logits_in_float64(case, vector, windows[begin:end], training=True)
            for begin, end in pairwise(borders)
        ],
        0,
    )
    labels = tf.one_hot(batch.labels, CLASSES, dtype=tf.float64)
    labels = labels * (1.0 - recipe.smoothing) + recipe.smoothing / CLASSES
    losses = tf.nn.softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_sum(losses * tf.constant(batch.weights, tf.float64)) / recipe.batch_size


@pytest.mark.parametrize("name", MODELS)
def test_gradients_and_losses(name: str) -> None:
    case = Case(name)
    trained, statistics = (tf.constant(part, tf.float64) for part in case.vector)
    with tf.GradientTape() as tape:
        tape.watch(trained)
        loss = loss_in_float64(case, tf.concat([trained, statistics], 0))
    expected = tape.gradient(loss, trained).numpy()
    found = case.sums()
    gradient = found.nodes[0, : len(expected)]
    assert np.abs(gradient - expected).max() <= CLOSE * np.abs(expected).max()
    assert found.losses.sum() == pytest.approx(float(loss), rel=CLOSE)


@pytest.mark.parametrize("name", MODELS)
def test_answers(name: str) -> None:
    case = Case(name)
    vector = tf.constant(np.concatenate(case.vector), tf.float64)
    windows = case.batch.windows
    expected = logits_in_float64(case, vector, tf.constant(windows, tf.float64), training=False)
    found = case.sums().logits
    assert np.abs(found - expected).max() <= CLOSE * np.abs(expected).max()
