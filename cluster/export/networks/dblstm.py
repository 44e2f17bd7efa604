"""`dblstm` as it is exported."""

from typing import Any

from cluster.export.networks.writing import Layers, WrittenNetwork
from cluster.export.writer import Tensor
from cluster.models.dblstm import ALL_LAYERS


class DeepBidirectional(WrittenNetwork):
    """See `cluster.models.dblstm`."""

    name = "dblstm"

    @staticmethod
    def logits(layers: Layers, network: Any, windows: Tensor) -> Tensor:
        """See WrittenNetwork."""
        config, last = network.config, ALL_LAYERS - 1
        hidden = layers.instance_norm(config.instance_norm, windows)
        for k in range(config.layers):
            name = f"layer{k}"
            hidden = layers.lstm(name, hidden) if k == last else layers.bidirectional(name, hidden)
        both = config.layers < ALL_LAYERS
        width = 2 * config.units if both else config.units // 2
        return layers.dense("head", layers.ends(hidden, network.problem.window_steps, width, bidirectional=both))
