"""`kth` as it is exported."""

from cluster.export.networks.writing import Layers, WrittenNetwork
from cluster.export.writer import Tensor
from cluster.models.network import BuiltIn


class Kth(WrittenNetwork):
    """See `cluster.models.kth`."""

    name = "kth"

    @staticmethod
    def logits(layers: Layers, network: BuiltIn, windows: Tensor) -> Tensor:
        """See WrittenNetwork."""
        config = network.config
        hidden = layers.dense_relu("projection", layers.instance_norm(config.instance_norm, windows))
        for k in range(config.layers):
            hidden = layers.lstm(f"layer{k}", hidden)
        return layers.dense("head", layers.at(hidden, network.problem.window_steps - 1, config.hidden))
