"""`conv-lstm`: two strided convolutions shorten the window to a quarter, bi-LSTM layers read what is left."""

from typing import Literal

from pydantic import Field

from cluster.inventory.fields import RecurrentChoice
from cluster.lazy import tf
from cluster.models.instance_norm import InstanceNorm
from cluster.models.layers import BidirectionalLstm, Convolution, Dense, Dropout
from cluster.models.network import BuiltIn, Output, Parameter, Part, Problem, Tensors

TAPS, STRIDE = 5, 2


class ConvolutionalModel(RecurrentChoice):
    """Two strided convolutions that shorten the window, then bi-LSTM layers."""

    name: Literal["conv-lstm"] = Field("conv-lstm", description="which network this is")
    filters: int = Field(64, ge=8, le=256, description="channels of each convolution")
    hidden: int = Field(64, ge=8, le=256, description="units of each recurrent layer, per direction")
    layers: int = Field(2, ge=1, le=8, description="bi-LSTM layers")


class ConvolutionalBody:
    """All but the head: convolutions with ReLU, bi-LSTM layers, the mean over time."""

    def __init__(self, filters: int, hidden: int, layers: int, problem: Problem) -> None:
        self.width = 2 * hidden
        self._convolutions = [
            Convolution("convolution0", problem.channels, filters, TAPS, STRIDE),
            Convolution("convolution1", filters, filters, TAPS, STRIDE),
        ]
        self._layers = [BidirectionalLstm(f"layer{k}", self.width if k else filters, hidden) for k in range(layers)]
        self._dropouts = [Dropout(problem.keep_probability, site=k) for k in range(1 + layers)]

    def parameters(self) -> list[Parameter]:
        """Those of the convolutions, then of the layers, from the bottom up."""
        parts: list[Part] = [*self._convolutions, *self._layers]
        return [parameter for part in parts for parameter in part.parameters()]

    def __call__(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> tf.Tensor:
        """Shape (batch, width) from windows (batch, steps, channels)."""
        for convolution in self._convolutions:
            windows = tf.nn.relu(convolution(parameters, windows))
        hidden = self._dropouts[0](tf.transpose(windows, [1, 0, 2]), training=training, seed=seed)
        for layer, dropout in zip(self._layers, self._dropouts[1:], strict=True):
            hidden = dropout(layer(parameters, hidden), training=training, seed=seed)
        return tf.reduce_mean(hidden, 0)


class ConvolutionalLstm(BuiltIn):
    """Convolutions, bi-LSTM layers and a head."""

    name = "conv-lstm"
    Options = ConvolutionalModel

    @classmethod
    def widest_layer(cls, options: ConvolutionalModel) -> int:
        """See ModelFacts."""
        return 2 * options.hidden

    def __init__(self, config: ConvolutionalModel, problem: Problem) -> None:
        self._normed = InstanceNorm(config.instance_norm, problem)
        self._body = ConvolutionalBody(config.filters, config.hidden, config.layers, self._normed.problem)
        self._head = Dense("head", self._body.width, problem.classes)
        super().__init__(config, problem, [self._body, self._head])

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """See `Network.apply`."""
        found = self._body(parameters, self._normed(windows), training=training, seed=seed)
        return Output(self._head(parameters, found))
