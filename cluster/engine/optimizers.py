"""Optimizers that run where the parameters are: fused updates of one shard on its parameter server."""

from dataclasses import dataclass
from typing import Any, Protocol

import cluster.engine.environment  # noqa: F401  (before tensorflow)

import tensorflow as tf  # isort: skip


class Optimizer(Protocol):
    """How a gradient changes a shard. `slots` are created once per shard, beside the parameters."""

    @property
    def slot_names(self) -> tuple[str, ...]:
        """Names of the per-parameter slots, each a float32 vector of the shard's trained size."""
        ...

    def apply(self, parameters: Any, slots: tuple[Any, ...], gradient: Any, rate: Any, count: Any) -> Any:
        """Update `parameters` (a resource variable) in place; returns the op.

        `rate` is the learning rate (float32 scalar), `count` how many updates came before this one (int64 scalar).
        """
        ...


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba, arXiv 1412.6980); with `weight_decay` AdamW (Loshchilov & Hutter, arXiv 1711.05101).

    Weight decay is decoupled: parameters shrink by `rate * weight_decay` before the Adam step, as in PyTorch's AdamW.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    weight_decay: float = 0.0

    @property
    def slot_names(self) -> tuple[str, ...]:
        """First and second moment."""
        return ("first_moment", "second_moment")

    def apply(self, parameters: Any, slots: tuple[Any, ...], gradient: Any, rate: Any, count: Any) -> Any:
        """One fused Adam step."""
        step = tf.cast(count + 1, tf.float32)
        before = []
        if self.weight_decay:
            shrunk = parameters.read_value() * (1.0 - rate * self.weight_decay)
            before.append(parameters.assign(shrunk, read_value=False))
        with tf.control_dependencies(before):
            return tf.raw_ops.ResourceApplyAdam(
                var=parameters.handle,
                m=slots[0].handle,
                v=slots[1].handle,
                beta1_power=tf.pow(tf.constant(self.beta_1), step),
                beta2_power=tf.pow(tf.constant(self.beta_2), step),
                lr=rate,
                beta1=self.beta_1,
                beta2=self.beta_2,
                epsilon=self.epsilon,
                grad=gradient,
                use_locking=True,
            )


@dataclass(frozen=True)
class MomentumSGD:
    """Stochastic gradient descent with classical momentum: v = momentum * v - rate * gradient; parameters += v."""

    momentum: float = 0.0

    @property
    def slot_names(self) -> tuple[str, ...]:
        """The velocity, if there is any momentum."""
        return ("velocity",) if self.momentum else ()

    def apply(self, parameters: Any, slots: tuple[Any, ...], gradient: Any, rate: Any, count: Any) -> Any:
        """One step."""
        del count
        if not slots:
            return tf.raw_ops.ResourceApplyGradientDescent(
                var=parameters.handle, alpha=rate, delta=gradient, use_locking=True
            )
        return tf.raw_ops.ResourceApplyKerasMomentum(
            var=parameters.handle,
            accum=slots[0].handle,
            lr=rate,
            grad=gradient,
            momentum=self.momentum,
            use_locking=True,
        )
