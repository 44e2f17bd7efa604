"""`thesis` as it is exported."""

from typing import Any

import numpy as np

from cluster.export.networks.writing import Layers, WrittenNetwork
from cluster.export.writer import Tensor
from cluster.models.layers import StepBatchNorm


class Thesis(WrittenNetwork):
    """See `cluster.models.thesis`."""

    name = "thesis"

    @staticmethod
    def logits(layers: Layers, network: Any, windows: Tensor) -> Tensor:
        """See WrittenNetwork."""
        config, steps, write = network.config, network.problem.window_steps, layers.write
        hidden = layers.instance_norm(config.instance_norm, windows)
        ways = (("/forward", False), ("/backward", True)) if config.bidirectional else (("", False),)
        for k in range(config.n_stacked_layers):
            summed: Tensor = None
            for cell in range(max(1, config.n_layers_in_highway)):
                names = [(f"layer{k}/cell{cell}{way}", backward) for way, backward in ways]
                found = [_direction(layers, name, hidden, backward) for name, backward in names]
                both = write.joined(found, 2) if len(found) > 1 else found[0]
                summed = both if summed is None else write.each("add", summed, both)
            hidden = (
                _normalized(layers, StepBatchNorm(f"layer{k}/norm", steps), summed) if config.batch_norm else summed
            )
        ends = layers.ends(hidden, steps, config.hidden, bidirectional=config.bidirectional)
        return layers.dense("head", ends)


def _direction(layers: Layers, name: str, inputs: Tensor, backward: bool) -> Tensor:
    return layers.lstm(f"{name}/lstm", layers.dense_relu(f"{name}/projection", inputs), backward=backward)


def _normalized(layers: Layers, norm: StepBatchNorm, inputs: Tensor) -> Tensor:
    scale, shift, mean, variance = (
        layers.parameters[f"{norm.name}/{each}"] for each in ("scale", "shift", "mean", "variance")
    )
    factor = (scale / np.sqrt(variance.astype(np.float64) + norm.epsilon)).astype(np.float32)
    centred = layers.write.each("subtract", inputs, mean[None, :, None])
    return layers.write.each("add", layers.write.each("multiply", centred, factor[None, :, None]), shift)
