"""Every network against Keras layers that hold the same weights: logits and all gradients to 1e-5."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from cluster.inventory.fields import Choice as ModelConfig
from cluster.models.conv_lstm import ConvolutionalModel
from cluster.models.dblstm import DeepBidirectionalModel
from cluster.models.kth import KthModel
from cluster.models.network import build
from cluster.models.residual import ResidualModel
from cluster.models.thesis import ThesisModel
from tests.models.yardstick import TOLERANCE, Yardstick, logits_and_gradients, perturbed, windows

Forward = Callable[[tf.Tensor], tf.Tensor]


def plain(keras: Yardstick) -> Forward:
    layers = [(keras.dense(f"layer{k}/cell0/projection"), keras.lstm(f"layer{k}/cell0/lstm")) for k in range(3)]
    head = keras.dense("head")

    def forward(inputs: tf.Tensor) -> tf.Tensor:
        for projection, lstm in layers:
            inputs = lstm(tf.nn.relu(projection(inputs)))
        return head(inputs[:, -1])

    return forward


def highway(keras: Yardstick) -> Forward:
    def cell(name: str) -> Forward:
        parts = [
            (keras.dense(f"{name}/{way}/projection"), keras.lstm(f"{name}/{way}/lstm", backward=way == "backward"))
            for way in ("forward", "backward")
        ]
        return lambda inputs: tf.concat([lstm(tf.nn.relu(projection(inputs))) for projection, lstm in parts], 2)

    layers = [[cell(f"layer{k}/cell{j}") for j in range(2)] for k in range(2)]
    head = keras.dense("head")

    def forward(inputs: tf.Tensor) -> tf.Tensor:
        for cells in layers:
            inputs = tf.add_n([one(inputs) for one in cells])
        half = inputs.shape[2] // 2
        return head(tf.concat([inputs[:, -1, :half], inputs[:, 0, half:]], 1))

    return forward


def residual(keras: Yardstick) -> Forward:
    projection, norm, head = keras.dense("projection"), keras.layer_norm("norm"), keras.dense("head")
    blocks = [(keras.layer_norm(f"layer{k}/norm"), keras.bidirectional(f"layer{k}/lstm")) for k in range(2)]

    def forward(inputs: tf.Tensor) -> tf.Tensor:
        stream = projection(inputs)
        for before, lstm in blocks:
            stream = stream + lstm(before(stream))
        return head(tf.reduce_mean(norm(stream), 1))

    return forward


def dblstm(keras: Yardstick) -> Forward:
    layers = [keras.bidirectional("layer0"), keras.bidirectional("layer1"), keras.lstm("layer2")]
    head = keras.dense("head")

    def forward(inputs: tf.Tensor) -> tf.Tensor:
        for layer in layers:
            inputs = layer(inputs)
        return head(inputs[:, -1])

    return forward


def two_of_the_dblstm(keras: Yardstick) -> Forward:
    layers, head = [keras.bidirectional("layer0"), keras.bidirectional("layer1")], keras.dense("head")

    def forward(inputs: tf.Tensor) -> tf.Tensor:
        for layer in layers:
            inputs = layer(inputs)
        half = inputs.shape[2] // 2
        return head(tf.concat([inputs[:, -1, :half], inputs[:, 0, half:]], 1))

    return forward


def kth(keras: Yardstick) -> Forward:
    projection, head = keras.dense("projection"), keras.dense("head")
    layers = [keras.lstm(f"layer{k}") for k in range(2)]

    def forward(inputs: tf.Tensor) -> tf.Tensor:
        inputs = tf.nn.relu(projection(inputs))
        for layer in layers:
            inputs = layer(inputs)
        return head(inputs[:, -1])

    return forward


def conv_lstm(keras: Yardstick) -> Forward:
    convolutions = [keras.convolution(f"convolution{k}", 2) for k in range(2)]
    layers = [keras.bidirectional(f"layer{k}") for k in range(2)]
    head = keras.dense("head")

    def forward(inputs: tf.Tensor) -> tf.Tensor:
        for convolution in convolutions:
            inputs = tf.nn.relu(convolution(inputs))
        for layer in layers:
            inputs = layer(inputs)
        return head(tf.reduce_mean(inputs, 1))

    return forward


@pytest.mark.parametrize(
    ("config", "yardstick"),
    [
        (ThesisModel(hidden=12), plain),
        (ThesisModel(hidden=12, n_layers_in_highway=2, n_stacked_layers=2, bidirectional=True), highway),
        (ResidualModel(hidden=8, layers=2), residual),
        (DeepBidirectionalModel(), dblstm),
        (DeepBidirectionalModel(units=10, layers=2), two_of_the_dblstm),
        (ConvolutionalModel(filters=8, hidden=10), conv_lstm),
        (KthModel(hidden=9), kth),
    ],
    ids=["plain", "highway", "residual", "dblstm", "dblstm of two layers", "conv-lstm", "kth"],
)
def test_logits_and_gradients_equal_keras(config: ModelConfig, yardstick: Callable[[Yardstick], Forward]) -> None:
    network = build(config, window_steps=14, channels=5, classes=4)
    vector, batch = perturbed(network), windows(3, network)
    logits, gradients = logits_and_gradients(network, vector, batch)

    keras = Yardstick(network.layout.unpack(vector))
    forward = yardstick(keras)
    with tf.GradientTape() as tape:
        expected = forward(tf.constant(batch))
        loss = tf.reduce_sum(expected * expected)
    expected_gradients = keras.gradients(tape, loss)

    np.testing.assert_allclose(logits, expected.numpy(), rtol=TOLERANCE, atol=TOLERANCE)
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in gradients.items():
        largest = np.abs(expected_gradients[name]).max()
        np.testing.assert_allclose(
            gradient, expected_gradients[name], rtol=TOLERANCE, atol=TOLERANCE * max(1, largest), err_msg=name
        )
