"""`conv-lstm`: two strided convolutions leave a quarter of the steps to bi-LSTM layers."""

from typing import Literal

from pydantic import Field

from core.inventory.fields import RecurrentChoice
from core.models.layers import BidirectionalLstm, Convolution, Dropout, InstanceNorm, Product
from core.models.network import BuiltIn, Parameter, Parametrized, Problem
from core.models.operations import Operations, Tensor

TAPS = 5
STRIDE = 2


class ConvolutionalModel(RecurrentChoice):
    """Two strided convolutions that shorten the window, then bi-LSTM layers."""

    name: Literal["conv-lstm"] = Field("conv-lstm", description="which network this is")
    filters: int = Field(64, ge=8, le=256, description="channels of each convolution")
    hidden: int = Field(
        64, ge=8, le=256, description="units of each recurrent layer, per direction"
    )
    layers: int = Field(2, ge=1, le=8, description="bi-LSTM layers")


class ConvolutionalBody:
    """All but the head: convolutions with ReLU, bi-LSTM layers, the mean over time."""

    def __init__(self, filters: int, hidden: int, layers: int, problem: Problem) -> None:
        self.width = 2 * hidden
        self._convolutions = [
            Convolution("convolution0", problem.channels, filters, TAPS, STRIDE),
            Convolution("convolution1", filters, filters, TAPS, STRIDE),
        ]
        self._layers = [
            BidirectionalLstm(f"layer{k}", self.width if k else filters, hidden)
            for k in range(layers)
        ]
        self._dropouts = [Dropout(problem.keep_probability, site=k) for k in range(1 + layers)]

    def parameters(self) -> list[Parameter]:
        """List those of the convolutions, then of the layers, from the bottom up."""
        layers: list[Parametrized] = [*self._convolutions, *self._layers]
        return [parameter for layer in layers for parameter in layer.parameters()]

    def __call__(self, ops: Operations, windows: Tensor) -> Tensor:
        """Return (batch, width) from windows (batch, steps, channels)."""
        for convolution in self._convolutions:
            windows = ops.unary("relu", convolution(ops, windows))
        hidden = self._dropouts[0](ops, ops.sequence(windows))
        for layer, dropout in zip(self._layers, self._dropouts[1:], strict=True):
            hidden = dropout(ops, layer(ops, hidden))
        return ops.averaged(hidden)


class ConvolutionalLstm(BuiltIn):
    """Convolutions, bi-LSTM layers and a head."""

    name = "conv-lstm"
    Options = ConvolutionalModel

    @classmethod
    def widest_layer(cls, options: ConvolutionalModel) -> int:
        """Count the units of the widest layer."""
        return 2 * options.hidden

    def __init__(self, config: ConvolutionalModel, problem: Problem) -> None:
        self._normed = InstanceNorm(config.instance_norm, problem)
        self._body = ConvolutionalBody(
            config.filters, config.hidden, config.layers, self._normed.problem
        )
        self._head = Product("head", self._body.width, problem.classes)
        super().__init__(config, problem, [self._body, self._head])

    def logits(self, ops: Operations, windows: Tensor) -> Tensor:
        """Write the network."""
        return self._head(ops, self._body(ops, self._normed(ops, windows)))
