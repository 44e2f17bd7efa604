"""Both LSTM kernels against Keras: outputs and gradients to 1e-5."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from core.ground.lazy import keras, tf
from tests.core.models.yardstick import Vector, close
from tests.lazy import lstm_kernels

STEPS = 17
BATCH = 3
SHAPES = [(9, 8), (32, 32), (64, 48), (5, 65)]
Results = list[Vector]


def operands(features: int, hidden: int, steps: int = STEPS) -> Results:
    draw = np.random.Generator(np.random.Philox(features * 1000 + hidden)).standard_normal
    values = [
        draw((steps, BATCH, features)),
        draw((features + hidden, 4 * hidden)) / np.sqrt(features + hidden),
        draw(4 * hidden),
        draw((steps, BATCH, hidden)) / steps,
    ]
    return [value.astype(np.float32) for value in values]


def with_gradients(kernel, inputs, weights, bias, direction):  # type: ignore[no-untyped-def]
    with tf.GradientTape() as tape:
        tape.watch([inputs, weights, bias])
        outputs = kernel(inputs, weights, bias)
        loss = tf.reduce_sum(outputs * direction)
    return outputs, *tape.gradient(loss, [inputs, weights, bias])


def run(kernel: Any, values: Results) -> Results:
    """Outputs, and the gradients by inputs, weights and bias."""
    return [
        found.numpy() for found in tf.function(with_gradients)(kernel, *map(tf.constant, values))
    ]


def run_keras(values: Results) -> Results:
    inputs, weights, bias, direction = values
    hidden = bias.size // 4
    layer = keras.layers.LSTM(hidden, return_sequences=True)
    layer.build((None, None, len(weights) - hidden))
    layer.set_weights([weights[:-hidden], weights[-hidden:], bias])

    def kernel(given: tf.Tensor) -> tf.Tensor:
        return tf.transpose(layer(tf.transpose(given, [1, 0, 2])), [1, 0, 2])

    given = tf.Variable(inputs)
    with tf.GradientTape() as tape:
        outputs = kernel(given)
        loss = tf.reduce_sum(outputs * direction)
    by_inputs, *by_kernels, by_bias = tape.gradient(loss, [given, *layer.trainable_weights])
    return [outputs, by_inputs, np.concatenate(by_kernels), by_bias]


@pytest.mark.parametrize("kernel", ["block_lstm", "looped_gradient_lstm"])
@pytest.mark.parametrize(("features", "hidden"), SHAPES)
def test_a_kernel_equals_keras(kernel: str, features: int, hidden: int) -> None:
    values = operands(features, hidden)
    close(run(getattr(lstm_kernels, kernel), values), run_keras(values))


@pytest.mark.parametrize(
    ("features", "hidden", "expected"),
    [
        (64, 64, "block_lstm"),
        (96, 64, "looped_gradient_lstm"),
    ],
)
def test_the_kernel_follows_from_the_shapes(
    features: int, hidden: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noted(name: str) -> Callable[..., tf.Tensor]:
        def kernel(inputs: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            asked.append(name)
            return inputs

        return kernel

    for name in ("block_lstm", "looped_gradient_lstm"):
        monkeypatch.setattr(f"core.models.lstm.{name}", noted(name))
    weights = tf.zeros([features + hidden, 4 * hidden])
    for batch in (1, 100):
        lstm_kernels.lstm(tf.zeros([2, batch, features]), weights, tf.zeros([4 * hidden]))
    assert asked == [expected, expected]
