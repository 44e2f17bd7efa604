"""Every network against Keras layers that hold the same weights.

Logits and all gradients to 1e-5.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from core.ground.lazy import tf
from core.inventory.fields import Choice as ModelConfig
from core.models.conv_lstm import ConvolutionalModel
from core.models.dblstm import DeepBidirectionalModel
from core.models.kth import KthModel
from core.models.residual import ResidualModel
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

    def both_ways(self, units: int) -> Any:
        return self(of_keras.Bidirectional(of_keras.LSTM(units, return_sequences=True)))


def chain(*parts: Forward) -> Forward:
    def forward(inputs: tf.Tensor) -> tf.Tensor:
        for part in parts:
            inputs = part(inputs)
        return inputs

    return forward


def summed(parts: Sequence[Forward]) -> Forward:
    return lambda inputs: tf.add_n([part(inputs) for part in parts])


def last(inputs: tf.Tensor) -> tf.Tensor:
    return inputs[:, -1]


def last_of_both_ways(inputs: tf.Tensor) -> tf.Tensor:
    half = inputs.shape[2] // 2
    return tf.concat([inputs[:, -1, :half], inputs[:, 0, half:]], 1)


def mean(inputs: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(inputs, 1)


def plain(layers: Layers) -> list[Forward]:
    return [chain(layers(of_keras.Dense(12, "relu")), layers.lstm(12)) for _ in range(3)] + [last]


def both_ways(layers: Layers) -> Forward:
    """A cell of the highway: a projection and an LSTM each way."""
    forward = chain(layers(of_keras.Dense(6, "relu")), layers.lstm(6))
    backward = chain(
        layers(of_keras.Dense(6, "relu")),
        layers(of_keras.LSTM(6, return_sequences=True, go_backwards=True)),
        lambda inputs: tf.reverse(inputs, [1]),
    )
    return lambda inputs: tf.concat([forward(inputs), backward(inputs)], 2)


def highway(layers: Layers) -> list[Forward]:
    cells = [summed([both_ways(layers), both_ways(layers)]) for _ in range(2)]
    return [*cells, last_of_both_ways]


def norm(layers: Layers) -> Any:
    return layers(of_keras.LayerNormalization(epsilon=1e-5))


def residual(layers: Layers) -> list[Forward]:
    projection = layers(of_keras.Dense(16))
    blocks = [summed([tf.identity, chain(norm(layers), layers.both_ways(8))]) for _ in range(2)]
    return [projection, *blocks, norm(layers), mean]


def dblstm(layers: Layers) -> list[Forward]:
    return [layers.both_ways(128), layers.both_ways(128), layers.lstm(64), last]


def two_of_the_dblstm(layers: Layers) -> list[Forward]:
    return [layers.both_ways(10), layers.both_ways(10), last_of_both_ways]


def kth(layers: Layers) -> list[Forward]:
    return [layers(of_keras.Dense(9, "relu")), layers.lstm(9), layers.lstm(9), last]


def conv_lstm(layers: Layers) -> list[Forward]:
    convolutions = [
        layers(of_keras.Conv1D(8, 5, 2, padding="same", activation="relu")) for _ in range(2)
    ]
    return [*convolutions, layers.both_ways(10), layers.both_ways(10), mean]


@pytest.mark.parametrize(
    ("config", "body"),
    [
        (ThesisModel(hidden=12), plain),
        (
            ThesisModel(hidden=12, n_layers_in_highway=2, n_stacked_layers=2, bidirectional=True),
            highway,
        ),
        (ResidualModel(hidden=8, layers=2), residual),
        (DeepBidirectionalModel(), dblstm),
        (DeepBidirectionalModel(units=10, layers=2), two_of_the_dblstm),
        (ConvolutionalModel(filters=8, hidden=10), conv_lstm),
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
