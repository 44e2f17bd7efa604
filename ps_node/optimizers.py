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

    def stepped(self, parameters: Any, slots: Any, gradient: Any, rate: Any, count: Any) -> tuple[Any, Any]:
        """The same step on plain tensors: new parameters (n,) and new slots (len(slot_names), n)."""
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

    def stepped(self, parameters: Any, slots: Any, gradient: Any, rate: Any, count: Any) -> tuple[Any, Any]:
        """One Adam step on tensors, in the order of the fused operation."""
        step = tf.cast(count + 1, tf.float32)
        if self.weight_decay:
            parameters = parameters * (1.0 - rate * self.weight_decay)
        first = slots[0] + (gradient - slots[0]) * (1.0 - self.beta_1)
        second = slots[1] + (tf.square(gradient) - slots[1]) * (1.0 - self.beta_2)
        corrected = rate * tf.sqrt(1.0 - tf.pow(self.beta_2, step)) / (1.0 - tf.pow(self.beta_1, step))
        return parameters - first * corrected / (tf.sqrt(second) + self.epsilon), tf.stack([first, second])


@dataclass(frozen=True)
class MomentumSGD:
    """Stochastic gradient descent with classical momentum: v = momentum * v - rate * gradient; parameters += v.

    With `nesterov` parameters += momentum * v - rate * gradient instead (Sutskever et al., ICML 2013, section 2).
    """

    momentum: float = 0.0
    nesterov: bool = False

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
            use_nesterov=self.nesterov,
            use_locking=True,
        )

    def stepped(self, parameters: Any, slots: Any, gradient: Any, rate: Any, count: Any) -> tuple[Any, Any]:
        """One step on tensors."""
        del count
        if not self.momentum:
            return parameters - rate * gradient, slots
        velocity = self.momentum * slots[0] - rate * gradient
        change = self.momentum * velocity - rate * gradient if self.nesterov else velocity
        return parameters + change, velocity[None]
