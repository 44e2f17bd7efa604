"""`kth` as it is exported."""

from typing import Any

from cluster.export.networks.writing import Layers, WrittenNetwork
from cluster.export.writer import Tensor


class Kth(WrittenNetwork):
    """See `cluster.models.kth`."""

    name = "kth"

    @staticmethod
    def logits(layers: Layers, network: Any, windows: Tensor) -> Tensor:
        """See WrittenNetwork."""
        config = network.config
        hidden = layers.dense_relu("projection", layers.instance_norm(config.instance_norm, windows))
        for k in range(config.layers):
            hidden = layers.lstm(f"layer{k}", hidden)
        return layers.dense("head", layers.at(hidden, network.problem.window_steps - 1, config.hidden))
