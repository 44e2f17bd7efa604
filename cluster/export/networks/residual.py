"""`residual` as it is exported."""

from typing import Any

from cluster.export.networks.writing import Layers, WrittenNetwork
from cluster.export.writer import Tensor


def body(layers: Layers, count: int, windows: Tensor) -> Tensor:
    """See `cluster.models.residual.ResidualBody`."""
    stream = layers.dense("projection", windows)
    for k in range(count):
        change = layers.bidirectional(f"layer{k}/lstm", layers.layer_norm(f"layer{k}/norm", stream))
        stream = layers.write.each("add", stream, change)
    return layers.write.over("mean", layers.layer_norm("norm", stream), 1)


class Residual(WrittenNetwork):
    """See `cluster.models.residual`."""

    name = "residual"

    @staticmethod
    def logits(layers: Layers, network: Any, windows: Tensor) -> Tensor:
        """See WrittenNetwork."""
        config = network.config
        normed = layers.instance_norm(config.instance_norm, windows)
        return layers.dense("head", body(layers, config.layers, normed))
