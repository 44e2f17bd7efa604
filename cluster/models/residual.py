"""`residual`: a pre-norm stack of bi-LSTM layers with true residual connections, x + f(norm(x)), averaged over time."""

from typing import Literal

from pydantic import Field

from cluster.inventory.fields import Choice
from cluster.lazy import tf
from cluster.models.layers import BidirectionalLstm, Dense, Dropout, LayerNorm
from cluster.models.network import BuiltIn, Output, Problem, Tensors


class ResidualModel(Choice):
    """A stack of pre-norm residual bi-LSTM layers, x + f(norm(x)), averaged over time."""

    name: Literal["residual"] = Field("residual", description="which network this is")
    hidden: int = Field(32, ge=8, le=256, description="units of each recurrent layer, per direction")
    layers: int = Field(3, ge=1, le=8, description="residual layers")


class Residual(BuiltIn):
    """A linear projection to 2 * hidden, `layers` residual bi-LSTM layers, a last norm, the mean over time, a head."""

    name = "residual"
    Options = ResidualModel

    @classmethod
    def widest_layer(cls, options: ResidualModel) -> int:
        """See ModelFacts."""
        return 2 * options.hidden

    def __init__(self, config: ResidualModel, problem: Problem) -> None:
        width = 2 * config.hidden
        self._projection = Dense("projection", problem.channels, width)
        self._blocks = [
            (LayerNorm(f"layer{k}/norm", width), BidirectionalLstm(f"layer{k}/lstm", width, config.hidden))
            for k in range(config.layers)
        ]
        self._norm = LayerNorm("norm", width)
        self._head = Dense("head", width, problem.classes)
        self._block_dropouts = [Dropout(problem.keep_probability, site=k) for k in range(config.layers)]
        self._head_dropout = Dropout(problem.keep_probability, site=config.layers)
        blocks = [part for block in self._blocks for part in block]
        super().__init__(config, problem, [self._projection, *blocks, self._norm, self._head])

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """See `Network.apply`."""
        stream = self._projection(parameters, tf.transpose(windows, [1, 0, 2]))
        for (norm, lstm), dropout in zip(self._blocks, self._block_dropouts, strict=True):
            change = lstm(parameters, norm(parameters, stream))
            stream = stream + dropout(change, training=training, seed=seed)
        average = tf.reduce_mean(self._norm(parameters, stream), 0)
        return Output(self._head(parameters, self._head_dropout(average, training=training, seed=seed)))
