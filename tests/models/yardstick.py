"""Keras layers that carry a network's own weights: the yardstick its outputs and gradients are held against."""

from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from cluster.models.network import Network

Arrays = Mapping[str, NDArray[np.float32]]
TOLERANCE = 1e-5


class Yardstick:
    """Makes Keras layers from named parameters and maps the gradients of their weights back to those names."""

    def __init__(self, parameters: Arrays) -> None:
        self.parameters = parameters
        self._variables: dict[str, list[tf.Variable]] = {}

    def dense(self, name: str) -> keras.layers.Layer:
        kernel, bias = self.parameters[f"{name}/kernel"], self.parameters[f"{name}/bias"]
        layer = keras.layers.Dense(kernel.shape[1])
        layer.build((None, kernel.shape[0]))
        layer.set_weights([kernel, bias])
        self._variables |= {f"{name}/kernel": [layer.kernel], f"{name}/bias": [layer.bias]}
        return layer

    def convolution(self, name: str, strides: int) -> keras.layers.Layer:
        kernel, bias = self.parameters[f"{name}/kernel"], self.parameters[f"{name}/bias"]
        layer = keras.layers.Conv1D(kernel.shape[2], kernel.shape[0], strides, padding="same")
        layer.build((None, None, kernel.shape[1]))
        layer.set_weights([kernel, bias])
        self._variables |= {f"{name}/kernel": [layer.kernel], f"{name}/bias": [layer.bias]}
        return layer

    def layer_norm(self, name: str) -> keras.layers.Layer:
        scale, shift = self.parameters[f"{name}/scale"], self.parameters[f"{name}/shift"]
        layer = keras.layers.LayerNormalization(epsilon=1e-5)
        layer.build((None, scale.shape[0]))
        layer.set_weights([scale, shift])
        self._variables |= {f"{name}/scale": [layer.gamma], f"{name}/shift": [layer.beta]}
        return layer

    def lstm(self, name: str, *, backward: bool = False) -> Callable[[tf.Tensor], tf.Tensor]:
        """Batch-major: (batch, steps, features) to (batch, steps, hidden), both directions in the order of time."""
        kernel, bias = self.parameters[f"{name}/kernel"], self.parameters[f"{name}/bias"]
        hidden = bias.shape[0] // 4
        features = kernel.shape[0] - hidden
        layer = keras.layers.LSTM(hidden, return_sequences=True, go_backwards=backward)
        layer.build((None, None, features))
        layer.set_weights([kernel[:features], kernel[features:], bias])
        cell = layer.cell
        self._variables |= {f"{name}/kernel": [cell.kernel, cell.recurrent_kernel], f"{name}/bias": [cell.bias]}
        return lambda inputs: tf.reverse(layer(inputs), [1]) if backward else layer(inputs)

    def bidirectional(self, name: str) -> Callable[[tf.Tensor], tf.Tensor]:
        forward, backward = self.lstm(f"{name}/forward"), self.lstm(f"{name}/backward", backward=True)
        return lambda inputs: tf.concat([forward(inputs), backward(inputs)], 2)

    def gradients(self, tape: tf.GradientTape, loss: tf.Tensor) -> dict[str, NDArray[np.float32]]:
        found = tape.gradient(loss, self._variables)
        return {name: np.concatenate([part.numpy() for part in parts]) for name, parts in found.items()}


def perturbed(network: Network, seed: int = 1) -> NDArray[np.float32]:
    """Initial values plus noise, so that biases, scales and shifts count too."""
    noise = np.random.Generator(np.random.Philox(seed)).standard_normal(network.layout.size)
    return network.initial(seed) + (0.1 * noise).astype(np.float32)


def windows(batch: int, network: Network, seed: int = 2) -> NDArray[np.float32]:
    shape = (batch, network.problem.window_steps, network.problem.channels)
    return np.random.Generator(np.random.Philox(seed)).standard_normal(shape).astype(np.float32)


def logits_and_gradients(
    network: Network, vector: NDArray[np.float32], batch: NDArray[np.float32]
) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
    """Logits, and the gradients of the sum of their squares by every named parameter, as the engine computes them."""

    @tf.function  # type: ignore[untyped-decorator, unused-ignore]
    def run(flat: tf.Tensor, batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(flat)
            logits = network.apply(
                network.unpack(flat), batch, training=True, seed=tf.constant([0, 0], tf.int32)
            ).logits
            loss = tf.reduce_sum(logits * logits)
        return logits, tape.gradient(loss, flat)

    logits, gradient = run(tf.constant(vector), tf.constant(batch))
    return logits.numpy(), network.layout.unpack(gradient.numpy())
