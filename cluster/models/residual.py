"""`residual`: a pre-norm stack of bi-LSTM layers with true residual connections, x + f(norm(x)), averaged over time."""

from typing import Literal

from pydantic import Field

from cluster.inventory.fields import RecurrentChoice
from cluster.lazy import tf
from cluster.models.instance_norm import InstanceNorm
from cluster.models.layers import BidirectionalLstm, Dense, Dropout, LayerNorm
from cluster.models.network import BuiltIn, Output, Parameter, Problem, Tensors


class ResidualModel(RecurrentChoice):
    """A stack of pre-norm residual bi-LSTM layers, x + f(norm(x)), averaged over time."""

    name: Literal["residual"] = Field("residual", description="which network this is")
    hidden: int = Field(32, ge=8, le=256, description="units of each recurrent layer, per direction")
    layers: int = Field(3, ge=1, le=8, description="residual layers")


class ResidualBody:
    """All but the head: a linear projection to 2 * hidden, residual bi-LSTM layers, a last norm, the mean over time."""

    def __init__(self, hidden: int, layers: int, problem: Problem) -> None:
        self.width = 2 * hidden
        self._projection = Dense("projection", problem.channels, self.width)
        self._blocks = [
            (LayerNorm(f"layer{k}/norm", self.width), BidirectionalLstm(f"layer{k}/lstm", self.width, hidden))
            for k in range(layers)
        ]
        self._norm = LayerNorm("norm", self.width)
        self._dropouts = [Dropout(problem.keep_probability, site=k) for k in range(layers + 1)]

    def parameters(self) -> list[Parameter]:
        """Those of the projection, of the layers from the bottom up, of the last norm."""
        parts = [self._projection, *(part for block in self._blocks for part in block), self._norm]
        return [parameter for part in parts for parameter in part.parameters()]

    def __call__(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> tf.Tensor:
        """Shape (batch, width) from windows (batch, steps, channels)."""
        stream = self._projection(parameters, tf.transpose(windows, [1, 0, 2]))
        for (norm, lstm), dropout in zip(self._blocks, self._dropouts[:-1], strict=True):
            change = lstm(parameters, norm(parameters, stream))
            stream = stream + dropout(change, training=training, seed=seed)
        average = tf.reduce_mean(self._norm(parameters, stream), 0)
        return self._dropouts[-1](average, training=training, seed=seed)


class Residual(BuiltIn):
    """The residual stack and a head."""

    name = "residual"
    Options = ResidualModel

    @classmethod
    def widest_layer(cls, options: ResidualModel) -> int:
        """See ModelFacts."""
        return 2 * options.hidden

    def __init__(self, config: ResidualModel, problem: Problem) -> None:
        self._normed = InstanceNorm(config.instance_norm, problem)
        self._body = ResidualBody(config.hidden, config.layers, self._normed.problem)
        self._head = Dense("head", self._body.width, problem.classes)
        super().__init__(config, problem, [self._body, self._head])

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """See `Network.apply`."""
        found = self._body(parameters, self._normed(windows), training=training, seed=seed)
        return Output(self._head(parameters, found))
