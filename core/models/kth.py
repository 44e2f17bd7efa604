"""`kth`: each sample through a dense layer with ReLU, two LSTMs of 64, a head on the last step.

The network of Sozinov and Hammar's slides (KTH 2018) on HHAR: 3 -> 64, LSTM 64, LSTM 64, 64 -> 7.
With biases that is 66,759 parameters on three channels and seven classes, as their checkpoint has;
without, the slides' 66,176 weights.
"""

from typing import Literal

from pydantic import Field

from core.inventory.fields import RecurrentChoice
from core.models.layers import Dropout, InstanceNorm, Lstm, Product
from core.models.network import BuiltIn, Problem
from core.models.operations import Operations, Tensor


class KthModel(RecurrentChoice):
    """A dense layer with ReLU at each step, then LSTM layers.

    On HHAR's 3 axes and 7 classes it has exactly 66,759 parameters.
    """

    name: Literal["kth"] = Field("kth", description="which network this is")
    hidden: int = Field(
        64, ge=8, le=256, description="units of the dense layer and of each recurrent layer"
    )
    layers: int = Field(2, ge=1, le=8, description="LSTM layers")


class Kth(BuiltIn):
    """The authors' dense weights start from deviation 1, biases around 1; ours Glorot, 0."""

    name = "kth"
    Options = KthModel

    @classmethod
    def widest_layer(cls, options: KthModel) -> int:
        """Count the units of the widest layer."""
        return options.hidden

    def __init__(self, config: KthModel, problem: Problem) -> None:
        self._normed = InstanceNorm(config.instance_norm, problem)
        self._projection = Product("projection", self._normed.problem.channels, config.hidden)
        self._layers = [
            Lstm(f"layer{k}", config.hidden, config.hidden) for k in range(config.layers)
        ]
        self._head = Product("head", config.hidden, problem.classes)
        self._dropouts = [Dropout(problem.keep_probability, site=k) for k in range(config.layers)]
        super().__init__(config, problem, [self._projection, *self._layers, self._head])

    def logits(self, ops: Operations, windows: Tensor) -> Tensor:
        """Write the network."""
        steps = ops.sequence(self._normed(ops, windows))
        hidden = ops.unary("relu", self._projection(ops, steps))
        for layer, dropout in zip(self._layers, self._dropouts, strict=True):
            hidden = dropout(ops, layer(ops, hidden))
        return self._head(ops, ops.at(hidden, -1))
