"""`hybrid`: the statistics of `spectral` beside the layers of `conv-lstm` or `residual`."""

from typing import Literal

from pydantic import Field

from core.inventory.fields import RecurrentChoice
from core.models.conv_lstm import ConvolutionalBody
from core.models.layers import Dropout, InstanceNorm, Product
from core.models.network import Problem
from core.models.operations import Operations, Tensor
from core.models.residual import ResidualBody
from core.models.spectral import MeasuredNetwork, StandardizedStatistics

STATISTICS_SITE = 100
"""The dropout beside the statistics has this site: the recurrent layers count theirs from 0."""


class HybridModel(RecurrentChoice):
    """Statistics and spectrum of each window beside recurrent layers over its samples.

    They are joined before the head.
    """

    name: Literal["hybrid"] = Field("hybrid", description="which network this is")
    body: Literal["conv-lstm", "residual"] = Field(
        "conv-lstm", description="which network's recurrent layers it has"
    )
    filters: int = Field(
        64, ge=8, le=256, description="channels of each convolution, with `conv-lstm`"
    )
    hidden: int = Field(
        64, ge=8, le=256, description="units of each recurrent layer, per direction"
    )
    layers: int = Field(2, ge=1, le=8, description="recurrent layers")
    statistics_hidden: int = Field(
        64, ge=8, le=1024, description="units of the hidden layer over the statistics"
    )
    dropout: float = Field(
        0.5,
        ge=0.0,
        lt=1.0,
        description="share of those dropped in training, whatever keep_probability is",
    )


class Hybrid(MeasuredNetwork):
    """A hidden layer over the statistics and a recurrent body, side by side under one head."""

    name = "hybrid"
    Options = HybridModel

    @classmethod
    def widest_layer(cls, options: HybridModel) -> int:
        """Count the units of the widest layer."""
        return max(2 * options.hidden, options.statistics_hidden)

    def __init__(self, config: HybridModel, problem: Problem) -> None:
        self._normed = InstanceNorm(config.instance_norm, problem)
        self._body = (
            ResidualBody(config.hidden, config.layers, self._normed.problem)
            if config.body == "residual"
            else ConvolutionalBody(
                config.filters, config.hidden, config.layers, self._normed.problem
            )
        )
        self.statistics = StandardizedStatistics("statistics", problem)
        self._hidden = Product(
            "statistics/hidden", self.statistics.function.count, config.statistics_hidden
        )
        self._head = Product("head", self._body.width + config.statistics_hidden, problem.classes)
        self._dropout = Dropout(1.0 - config.dropout, site=STATISTICS_SITE)
        super().__init__(config, problem, [self._body, self.statistics, self._hidden, self._head])

    def logits(self, ops: Operations, windows: Tensor) -> Tensor:
        """Write the network."""
        sequence = self._body(ops, self._normed(ops, windows))
        figures = ops.unary("relu", self._hidden(ops, self.statistics(ops, windows)))
        return self._head(ops, ops.concat([sequence, self._dropout(ops, figures)], 1))
