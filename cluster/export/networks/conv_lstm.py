"""`conv-lstm` as it is exported."""

from typing import Any

from cluster.export.networks.writing import Layers, WrittenNetwork
from cluster.export.writer import Tensor
from cluster.models.conv_lstm import STRIDE


def body(layers: Layers, count: int, windows: Tensor) -> Tensor:
    """See `cluster.models.conv_lstm.ConvolutionalBody`."""
    hidden, write = windows, layers.write
    for k in range(2):
        kernel, bias = (layers.parameters[f"convolution{k}/{each}"] for each in ("kernel", "bias"))
        hidden = write.own("relu", write.convolution(hidden, kernel, bias, STRIDE))
    for k in range(count):
        hidden = layers.bidirectional(f"layer{k}", hidden)
    return write.over("mean", hidden, 1)


class ConvolutionalLstm(WrittenNetwork):
    """See `cluster.models.conv_lstm`."""

    name = "conv-lstm"

    @staticmethod
    def logits(layers: Layers, network: Any, windows: Tensor) -> Tensor:
        """See WrittenNetwork."""
        config = network.config
        normed = layers.instance_norm(config.instance_norm, windows)
        return layers.dense("head", body(layers, config.layers, normed))
