"""Normalization layers: over one sample's features, and over the batch with running statistics."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.lazy import tf
from cluster.models.initial import constant
from cluster.models.network import Parameter, Tensors
from cluster.parameters.layout import ParameterSpec


@dataclass(frozen=True)
class LayerNorm:
    """Mean 0 and variance 1 over the last axis, then a trained scale and shift per feature (Ba et al. 2016)."""

    name: str
    features: int
    epsilon: float = 1e-5

    def parameters(self) -> list[Parameter]:
        """Scales of 1 and shifts of 0, one pair a feature."""
        scale = ParameterSpec(f"{self.name}/scale", (self.features,), decayed=False)
        shift = ParameterSpec(f"{self.name}/shift", (self.features,), decayed=False)
        return [Parameter(scale, constant(1.0)), Parameter(shift, constant(0.0))]

    def __call__(self, parameters: Tensors, inputs: tf.Tensor) -> tf.Tensor:
        """The inputs' shape, (..., features)."""
        mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
        normalized = (inputs - mean) * tf.math.rsqrt(variance + self.epsilon)
        return normalized * parameters[f"{self.name}/scale"] + parameters[f"{self.name}/shift"]


@dataclass(frozen=True)
class StepBatchNorm:
    """Mean 0 and variance 1 over batch and features of each time step, then one trained scale and shift for all.

    In training the micro-batch's own statistics normalize it and are handed back to be averaged; outside training
    the averages do. They are untrained parameters `mean` and `variance` of shape (steps,).
    """

    name: str
    steps: int
    epsilon: float = 1e-3

    def parameters(self) -> list[Parameter]:
        """One scale, which starts at 0.5 as in the reference code, one shift, and the running statistics."""
        return [
            Parameter(ParameterSpec(f"{self.name}/scale", (1,), decayed=False), constant(0.5)),
            Parameter(ParameterSpec(f"{self.name}/shift", (1,), decayed=False), constant(0.0)),
            Parameter(ParameterSpec(f"{self.name}/mean", (self.steps,), trained=False, decayed=False), constant(0.0)),
            Parameter(
                ParameterSpec(f"{self.name}/variance", (self.steps,), trained=False, decayed=False), constant(1.0)
            ),
        ]

    def __call__(
        self, parameters: Tensors, inputs: tf.Tensor, *, training: bool
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """The inputs' shape, (steps, batch, features), and this micro-batch's statistics by name when training."""
        statistics: dict[str, tf.Tensor] = {}
        if training:
            mean, variance = tf.nn.moments(inputs, [1, 2])
            statistics = {
                f"{self.name}/mean": tf.stop_gradient(mean),
                f"{self.name}/variance": tf.stop_gradient(variance),
            }
        else:
            mean, variance = parameters[f"{self.name}/mean"], parameters[f"{self.name}/variance"]
        factor = tf.math.rsqrt(variance + self.epsilon) * parameters[f"{self.name}/scale"]
        normalized = (inputs - mean[:, None, None]) * factor[:, None, None]
        return normalized + parameters[f"{self.name}/shift"], statistics
