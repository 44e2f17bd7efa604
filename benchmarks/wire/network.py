"""The network both sides of `benchmarks.wire` train.

A residual bi-LSTM of 28 units, 29,182 parameters.

A projection from the channels to 28 units; twice a bi-LSTM of 28 units a direction, projected back
to 28 and added to its input; the mean over time; six activities. Here it is in Keras layers and as
a network of the engine's, with the same parameters in the same order.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.models.layers import BidirectionalLstm, Product
from core.models.network import BuiltIn, Network, Problem
from core.models.operations import Operations, Tensor
from core.models.residual import ResidualModel

PROBLEM = Problem((128, 9), 6)
BATCH = 32
HIDDEN = 28
LAYERS = 2
PARAMETERS = 29_182
LEARNING_RATE = 1e-3


class ResidualBidirectional(BuiltIn):
    """The network as the engine trains it: a pure function of the flat vector."""

    @classmethod
    def widest_layer(cls, options: ResidualModel) -> int:
        """See ModelFacts."""
        return 2 * options.hidden

    def __init__(self, problem: Problem = PROBLEM) -> None:
        self._projection = Product("projection", problem.channels, HIDDEN)
        self._layers = [
            (
                BidirectionalLstm(f"layer{k}/lstm", HIDDEN, HIDDEN),
                Product(f"layer{k}/back", 2 * HIDDEN, HIDDEN),
            )
            for k in range(LAYERS)
        ]
        self._head = Product("head", HIDDEN, problem.classes)
        layers = [part for pair in self._layers for part in pair]
        super().__init__(
            ResidualModel(hidden=HIDDEN, layers=LAYERS),
            problem,
            [self._projection, *layers, self._head],
        )

    def logits(self, ops: Operations, windows: Tensor) -> Tensor:
        """See BuiltIn."""
        hidden = self._projection(ops, ops.sequence(windows))
        for lstm, back in self._layers:
            hidden += back(ops, lstm(ops, hidden))
        return self._head(ops, ops.averaged(hidden))


def keras_model(problem: Problem = PROBLEM) -> Any:
    """The same network in Keras layers, as the tutorials write it."""
    import keras

    inputs = hidden = keras.Input((problem.window_steps, problem.channels))
    hidden = keras.layers.Dense(HIDDEN)(hidden)
    for _ in range(LAYERS):
        read = keras.layers.Bidirectional(keras.layers.LSTM(HIDDEN, return_sequences=True))(hidden)
        hidden = keras.layers.Add()([hidden, keras.layers.Dense(HIDDEN)(read)])
    outputs = keras.layers.Dense(problem.classes)(keras.layers.GlobalAveragePooling1D()(hidden))
    return keras.Model(inputs, outputs)


def keras_weights(network: Network, vector: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """What `keras_model().set_weights` takes for the flat `vector`.

    Keras keeps an LSTM's kernel in two pieces.
    """
    weights: list[NDArray[np.float32]] = []
    for name, value in network.layout.unpack(vector).items():
        if "/lstm/" in name and name.endswith("/kernel"):
            weights += [value[:-HIDDEN], value[-HIDDEN:]]
        else:
            weights.append(value)
    return weights


def windows(
    count: int, problem: Problem = PROBLEM
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Seeded noise float32 (count, steps, channels) and classes int32 (count,).

    What is in them moves no byte.
    """
    generator = np.random.default_rng(0)
    noise = generator.standard_normal((count, problem.window_steps, problem.channels), np.float32)
    return noise, np.arange(count, dtype=np.int32) % problem.classes
