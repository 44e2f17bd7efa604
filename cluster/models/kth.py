"""`kth`: each sample through a dense layer with ReLU, two LSTMs of 64, a head on the last step.

The network of Sozinov and Hammar's slides (KTH 2018) on HHAR: 3 -> 64, LSTM 64, LSTM 64, 64 -> 7. With biases that is
66,759 parameters on three channels and seven classes, as their checkpoint has; without, the slides' 66,176 weights.
"""

from typing import Literal

from pydantic import Field

from cluster.inventory.fields import RecurrentChoice
from cluster.lazy import tf
from cluster.models.instance_norm import InstanceNorm
from cluster.models.layers import Dense, Dropout, Lstm
from cluster.models.network import BuiltIn, Output, Problem, Tensors


class KthModel(RecurrentChoice):
    """A dense layer with ReLU at each step, then LSTM layers: exactly 66,759 parameters on HHAR's 3 axes, 7 classes."""

    name: Literal["kth"] = Field("kth", description="which network this is")
    hidden: int = Field(64, ge=8, le=256, description="units of the dense layer and of each recurrent layer")
    layers: int = Field(2, ge=1, le=8, description="LSTM layers")


class Kth(BuiltIn):
    """Their dense weights start from deviation 1 and biases around 1; ours are Glorot uniform and 0."""

    name = "kth"
    Options = KthModel

    @classmethod
    def widest_layer(cls, options: KthModel) -> int:
        """See ModelFacts."""
        return options.hidden

    def __init__(self, config: KthModel, problem: Problem) -> None:
        self._normed = InstanceNorm(config.instance_norm, problem)
        self._projection = Dense("projection", self._normed.problem.channels, config.hidden)
        self._layers = [Lstm(f"layer{k}", config.hidden, config.hidden) for k in range(config.layers)]
        self._head = Dense("head", config.hidden, problem.classes)
        self._dropouts = [Dropout(problem.keep_probability, site=k) for k in range(config.layers)]
        super().__init__(config, problem, [self._projection, *self._layers, self._head])

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """See `Network.apply`."""
        steps = tf.transpose(self._normed(windows), [1, 0, 2])
        hidden = tf.nn.relu(self._projection(parameters, steps))
        for layer, dropout in zip(self._layers, self._dropouts, strict=True):
            hidden = dropout(layer(parameters, hidden), training=training, seed=seed)
        return Output(self._head(parameters, hidden[-1]))
