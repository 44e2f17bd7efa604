"""`conv-lstm`: two strided convolutions shorten the window to a quarter, bi-LSTM layers read what is left."""

from typing import Literal

from pydantic import Field

from cluster.inventory.fields import Choice
from cluster.lazy import tf
from cluster.models.layers import BidirectionalLstm, Convolution, Dense, Dropout
from cluster.models.network import BuiltIn, Output, Problem, Tensors

TAPS, STRIDE = 5, 2


class ConvolutionalModel(Choice):
    """Two strided convolutions that shorten the window, then bi-LSTM layers."""

    name: Literal["conv-lstm"] = Field("conv-lstm", description="which network this is")
    filters: int = Field(64, ge=8, le=256, description="channels of each convolution")
    hidden: int = Field(64, ge=8, le=256, description="units of each recurrent layer, per direction")
    layers: int = Field(2, ge=1, le=8, description="bi-LSTM layers")


class ConvolutionalLstm(BuiltIn):
    """Convolutions with ReLU, bi-LSTM layers, the mean over time, a head."""

    name = "conv-lstm"
    Options = ConvolutionalModel

    @classmethod
    def widest_layer(cls, options: ConvolutionalModel) -> int:
        """See ModelFacts."""
        return 2 * options.hidden

    def __init__(self, config: ConvolutionalModel, problem: Problem) -> None:
        self._convolutions = [
            Convolution("convolution0", problem.channels, config.filters, TAPS, STRIDE),
            Convolution("convolution1", config.filters, config.filters, TAPS, STRIDE),
        ]
        self._layers = [
            BidirectionalLstm(f"layer{k}", 2 * config.hidden if k else config.filters, config.hidden)
            for k in range(config.layers)
        ]
        self._head = Dense("head", 2 * config.hidden, problem.classes)
        self._dropouts = [Dropout(problem.keep_probability, site=k) for k in range(1 + config.layers)]
        super().__init__(config, problem, [*self._convolutions, *self._layers, self._head])

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """See `Network.apply`."""
        for convolution in self._convolutions:
            windows = tf.nn.relu(convolution(parameters, windows))
        hidden = self._dropouts[0](tf.transpose(windows, [1, 0, 2]), training=training, seed=seed)
        for layer, dropout in zip(self._layers, self._dropouts[1:], strict=True):
            hidden = dropout(layer(parameters, hidden), training=training, seed=seed)
        return Output(self._head(parameters, tf.reduce_mean(hidden, 0)))
