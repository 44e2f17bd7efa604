"""The thesis's family: per layer an input projection with ReLU, then an LSTM; the head reads the last time step."""

from typing import Protocol

import tensorflow as tf

from cluster.models.layers import Dense, Lstm
from cluster.models.network import Network, Output, Problem, Tensors


class ThesisConfig(Protocol):
    """The knobs of the family."""

    n_stacked_layers: int
    hidden: int
    bias_mean: float


class Thesis(Network):
    """`n_stacked_layers` of projection and LSTM, `hidden` units wide."""

    def __init__(self, config: ThesisConfig, problem: Problem, keep_probability: float) -> None:
        self._config = config
        self._keep_probability = keep_probability
        hidden = config.hidden
        self._layers = [
            (
                Dense(f"layer{k}/projection", hidden if k else problem.channels, hidden, bias=config.bias_mean),
                Lstm(f"layer{k}/lstm", hidden, hidden),
            )
            for k in range(config.n_stacked_layers)
        ]
        self._head = Dense("head", hidden, problem.classes)
        parts = [part for layer in self._layers for part in layer]
        super().__init__("thesis", problem, [p for part in [*parts, self._head] for p in part.parameters()])

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """See `Network.apply`."""
        hidden = tf.transpose(windows, [1, 0, 2])
        for projection, lstm in self._layers:
            hidden = lstm(parameters, tf.nn.relu(projection(parameters, hidden)))
        return Output(self._head(parameters, hidden[-1]))

    def knobs(self) -> dict[str, object]:
        """See `Network.knobs`."""
        return {
            "n_stacked_layers": self._config.n_stacked_layers,
            "hidden": self._config.hidden,
            "bias_mean": self._config.bias_mean,
        }
