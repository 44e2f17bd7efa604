"""`residual`: pre-norm bi-LSTM layers with residuals, x + f(norm(x)), averaged over time."""

from typing import Literal

from pydantic import Field

from core.inventory.fields import RecurrentChoice
from core.models.layers import BidirectionalLstm, Dropout, InstanceNorm, LayerNorm, Product
from core.models.network import BuiltIn, Parameter, Problem
from core.models.operations import Operations, Tensor


class ResidualModel(RecurrentChoice):
    """A stack of pre-norm residual bi-LSTM layers, x + f(norm(x)), averaged over time."""

    name: Literal["residual"] = Field("residual", description="which network this is")
    hidden: int = Field(
        32, ge=8, le=256, description="units of each recurrent layer, per direction"
    )
    layers: int = Field(3, ge=1, le=8, description="residual layers")


class ResidualBody:
    """All but the head.

    A linear projection to 2 * hidden, residual bi-LSTM layers, a last norm, the mean over time.
    """

    def __init__(self, hidden: int, layers: int, problem: Problem) -> None:
        self.width = 2 * hidden
        self._projection = Product("projection", problem.channels, self.width)
        self._blocks = [
            (
                LayerNorm(f"layer{k}/norm", self.width),
                BidirectionalLstm(f"layer{k}/lstm", self.width, hidden),
            )
            for k in range(layers)
        ]
        self._norm = LayerNorm("norm", self.width)
        self._dropouts = [Dropout(problem.keep_probability, site=k) for k in range(layers + 1)]

    def parameters(self) -> list[Parameter]:
        """List the projection's, the layers' from the bottom up, the last norm's."""
        layers = [
            self._projection,
            *(layer for block in self._blocks for layer in block),
            self._norm,
        ]
        return [parameter for layer in layers for parameter in layer.parameters()]

    def __call__(self, ops: Operations, windows: Tensor) -> Tensor:
        """Return (batch, width) from windows (batch, steps, channels)."""
        stream = self._projection(ops, ops.sequence(windows))
        for (norm, lstm), dropout in zip(self._blocks, self._dropouts[:-1], strict=True):
            stream = stream + dropout(ops, lstm(ops, norm(ops, stream)))
        return self._dropouts[-1](ops, ops.averaged(self._norm(ops, stream)))


class Residual(BuiltIn):
    """The residual stack and a head."""

    name = "residual"
    Options = ResidualModel

    @classmethod
    def widest_layer(cls, options: ResidualModel) -> int:
        """Count the units of the widest layer."""
        return 2 * options.hidden

    def __init__(self, config: ResidualModel, problem: Problem) -> None:
        self._normed = InstanceNorm(config.instance_norm, problem)
        self._body = ResidualBody(config.hidden, config.layers, self._normed.problem)
        self._head = Product("head", self._body.width, problem.classes)
        super().__init__(config, problem, [self._body, self._head])

    def logits(self, ops: Operations, windows: Tensor) -> Tensor:
        """Write the network."""
        return self._head(ops, self._body(ops, self._normed(ops, windows)))
