"""`hybrid`: the statistics of `spectral` beside the layers of `conv-lstm` or `residual`, joined before the head."""

from typing import Literal

from pydantic import Field

from cluster.inventory.fields import RecurrentChoice
from cluster.lazy import tf
from cluster.models.conv_lstm import ConvolutionalBody
from cluster.models.instance_norm import InstanceNorm
from cluster.models.layers import Dense, Dropout
from cluster.models.network import Output, Problem, Tensors
from cluster.models.residual import ResidualBody
from cluster.models.spectral import MeasuredNetwork, StandardizedStatistics

STATISTICS_SITE = 100
"""Of the dropout beside the statistics: the recurrent layers count theirs from 0."""


class HybridModel(RecurrentChoice):
    """Statistics and spectrum of each window beside recurrent layers over its samples, joined before the head."""

    name: Literal["hybrid"] = Field("hybrid", description="which network this is")
    body: Literal["conv-lstm", "residual"] = Field("conv-lstm", description="whose recurrent layers it has")
    filters: int = Field(64, ge=8, le=256, description="channels of each convolution, with `conv-lstm`")
    hidden: int = Field(64, ge=8, le=256, description="units of each recurrent layer, per direction")
    layers: int = Field(2, ge=1, le=8, description="recurrent layers")
    statistics_hidden: int = Field(64, ge=8, le=1024, description="units of the hidden layer over the statistics")
    dropout: float = Field(
        0.5, ge=0.0, lt=1.0, description="share of those dropped in training, whatever keep_probability is"
    )


class Hybrid(MeasuredNetwork):
    """A hidden layer over the statistics and a recurrent body over the samples, side by side under one head."""

    name = "hybrid"
    Options = HybridModel

    @classmethod
    def widest_layer(cls, options: HybridModel) -> int:
        """See ModelFacts."""
        return max(2 * options.hidden, options.statistics_hidden)

    def __init__(self, config: HybridModel, problem: Problem) -> None:
        self._normed = InstanceNorm(config.instance_norm, problem)
        self._body = (
            ResidualBody(config.hidden, config.layers, self._normed.problem)
            if config.body == "residual"
            else ConvolutionalBody(config.filters, config.hidden, config.layers, self._normed.problem)
        )
        self.statistics = StandardizedStatistics("statistics", problem)
        self._hidden = Dense("statistics/hidden", self.statistics.function.count, config.statistics_hidden)
        self._head = Dense("head", self._body.width + config.statistics_hidden, problem.classes)
        self._dropout = Dropout(1.0 - config.dropout, site=STATISTICS_SITE)
        super().__init__(config, problem, [self._body, self.statistics, self._hidden, self._head])

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """See `Network.apply`."""
        sequence = self._body(parameters, self._normed(windows), training=training, seed=seed)
        figures = tf.nn.relu(self._hidden(parameters, self.statistics(parameters, windows)))
        joined = tf.concat([sequence, self._dropout(figures, training=training, seed=seed)], 1)
        return Output(self._head(parameters, joined), self.statistics.kept(parameters) if training else {})
