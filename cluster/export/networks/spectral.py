"""`spectral` as it is exported."""

from typing import Any

from cluster.export.networks.statistics import standardized_statistics
from cluster.export.networks.writing import Layers, WrittenNetwork
from cluster.export.writer import Tensor


class Spectral(WrittenNetwork):
    """See `cluster.models.spectral`."""

    name = "spectral"

    @staticmethod
    def logits(layers: Layers, network: Any, windows: Tensor) -> Tensor:
        """See WrittenNetwork."""
        found = standardized_statistics(layers, network.problem, "statistics", windows)
        if network.config.hidden:
            found = layers.dense_relu("hidden", found)
        return layers.dense("head", found)
