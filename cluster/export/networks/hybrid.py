"""`hybrid` as it is exported."""

from typing import Any

from cluster.export.networks import conv_lstm, residual
from cluster.export.networks.statistics import standardized_statistics
from cluster.export.networks.writing import Layers, WrittenNetwork
from cluster.export.writer import Tensor


class Hybrid(WrittenNetwork):
    """See `cluster.models.hybrid`."""

    name = "hybrid"

    @staticmethod
    def logits(layers: Layers, network: Any, windows: Tensor) -> Tensor:
        """See WrittenNetwork."""
        config = network.config
        normed = layers.instance_norm(config.instance_norm, windows)
        body = residual.body if config.body == "residual" else conv_lstm.body
        sequence = body(layers, config.layers, normed)
        figures = standardized_statistics(layers, network.problem, "statistics", windows)
        figures = layers.dense_relu("statistics/hidden", figures)
        return layers.dense("head", layers.write.joined([sequence, figures], 1))
