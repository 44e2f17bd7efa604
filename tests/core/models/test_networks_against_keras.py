"""Networks against Keras layers that hold the same weights: logits and all gradients to 1e-5.

The native library has every network once more: test_any_sensors compares both.
"""

from collections.abc import Callable
from typing import Any

import pytest

from core.inventory.fields import Choice as ModelConfig
from core.lazy import tf
from core.models.kth import KthModel
from core.models.thesis import ThesisModel
from tests.core.models.yardstick import (
    as_keras,
    close,
    gradient_function,
    perturbed,
    small,
    windows,
)
from tests.lazy import layers as of_keras

Forward = Callable[[tf.Tensor], tf.Tensor]


class Layers(list[Any]):
    """Keras layers in the order in which they are made, which is that of our parameters."""

    def __call__(self, layer: Any) -> Any:
        self.append(layer)
        return layer

    def lstm(self, units: int) -> Any:
        return self(of_keras.LSTM(units, return_sequences=True))


def chain(*parts: Forward) -> Forward:
    def forward(inputs: tf.Tensor) -> tf.Tensor:
        for part in parts:
            inputs = part(inputs)
        return inputs

    return forward


def last(inputs: tf.Tensor) -> tf.Tensor:
    return inputs[:, -1]


def plain(layers: Layers) -> list[Forward]:
    return [chain(layers(of_keras.Dense(12, "relu")), layers.lstm(12)) for _ in range(3)] + [last]


def kth(layers: Layers) -> list[Forward]:
    return [layers(of_keras.Dense(9, "relu")), layers.lstm(9), layers.lstm(9), last]


@pytest.mark.parametrize(
    ("config", "body"),
    [
        (ThesisModel(hidden=12), plain),
        (KthModel(hidden=9), kth),
    ],
)
def test_logits_and_gradients_equal_keras(
    config: ModelConfig, body: Callable[[Layers], list[Forward]]
) -> None:
    network = small(config, 14, 5, 4)
    vector = perturbed(network)
    batch = tf.constant(windows(3, network))
    run: Any = tf.function(gradient_function(network, squares=True))
    logits, gradient = run(tf.constant(vector), batch)

    layers = Layers()
    forward = chain(*body(layers), layers(of_keras.Dense(4)))
    forward(batch[:, :2])  # which makes the variables
    variables = [variable for layer in layers for variable in layer.trainable_variables]
    for variable, value in zip(variables, as_keras(network, vector), strict=True):
        variable.assign(value)
    with tf.GradientTape() as tape:
        expected = forward(batch)
        loss = tf.reduce_sum(expected * expected)

    close(logits, expected)
    found = as_keras(network, gradient.numpy())
    close(found, tape.gradient(loss, variables), scaled=True)
