"""`codec: topk`: the largest values alone; a worker keeps the others for later pushes."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from pydantic import Field

from core.engine.codecs import Codec
from core.ground.lazy import tf
from core.inventory.fields import Choice, Fraction


class TopKCodec(Choice):
    """The largest gradients, 8 bytes each; the worker keeps the others for later.

    It is Deep Gradient Compression, https://arxiv.org/abs/1712.01887.
    """

    name: Literal["topk"] = Field("topk", description="which codec this is")
    density: float = Field(
        0.01, gt=0.0, le=0.5, description="share of the gradient sent with each push"
    )
    momentum: Fraction = Field(
        0.9,
        description=(
            "momentum on the worker, in place of the optimizer's; 0 with an optimizer that has"
            " its own"
        ),
    )
    clip_norm: float | None = Field(
        None,
        gt=0.0,
        description=(
            "each worker cuts its gradient to this over the root of the number of workers, before"
            " it adds it to what it kept; null leaves it at `jobs.train.clip_norm`"
        ),
    )
    warmup_epochs: int = Field(
        0,
        ge=0,
        le=100,
        description=(
            "epochs in which the density falls from 0.25 to `density`, by the same factor each; 4"
            " and 0.001 are the paper's"
        ),
    )


WARMUP_DENSITY = 0.25
"""The density of a warm-up's first epoch: 75 % sparsity (Lin et al., section 3.4)."""


@dataclass(frozen=True)
class TopK(Codec):
    """The largest values alone; the others are added to the next: Deep Gradient Compression.

    Lin et al., arXiv 1712.01887: with the memory's rows velocity u and residual v, u = momentum u +
    gradient, v = v + u; the share `density` of v with the largest magnitudes is sent, and u and v
    are zeroed there. Of equal magnitudes the first are sent. Without momentum v alone is kept.
    Values must be finite.

    The gradient is first cut to the norm `clip_norm` / sqrt(workers): the sum of as many
    independent gradients has the norm `clip_norm` then (section 3.3). In the first `warmup_epochs`
    epochs more is sent (section 3.4). What is sent follows from the update's number, so that a
    repeated or resumed update sends the same.

    The momentum replaces the optimizer's: it belongs to plain gradient descent on the parameter
    servers.
    """

    density: float
    momentum: float = 0.0
    clip_norm: float | None = None
    warmup_epochs: int = 0
    updates_an_epoch: int = 1

    name = "topk"
    travels = (
        "the largest values with their indices, 8 bytes each; a worker keeps the others for later"
    )
    keeps_back = True
    Options = TopKCodec

    @property
    def memory_rows(self) -> int:
        """The residual, and the velocity if there is momentum."""
        if self.momentum:
            return 2
        return 1

    def sent(self, size: int) -> int:
        """Return how many of `size` values are sent: at least one."""
        return math.ceil(self.density * size)

    def words(self, size: int) -> int:
        """A value and an index each."""
        return 2 * self.sent(size)

    def within(self, updates_an_epoch: int) -> Self:
        """Count the warm-up in updates."""
        return replace(self, updates_an_epoch=max(1, updates_an_epoch))

    @property
    def varies(self) -> bool:
        """Return whether there is a warm-up."""
        return self.warmup_epochs > 0

    def densities(self) -> list[float]:
        """Return the density of each epoch of the warm-up, then that of all others."""
        first = max(WARMUP_DENSITY, self.density)
        factor = self.density / first
        return [
            first * factor ** (epoch / self.warmup_epochs) for epoch in range(self.warmup_epochs)
        ] + [self.density]

    def limited(self, values: Any, workers: Any) -> Any:
        """Clip the values to a worker's share of the norm."""
        if self.clip_norm is None:
            return values
        most = self.clip_norm / tf.sqrt(workers)
        return values * (most / tf.maximum(tf.sqrt(tf.reduce_sum(tf.square(values))), most))

    def encode_update(self, values: Any, memory: Any, update: Any) -> tuple[Any, Any]:
        """Encode at the density of the update's epoch."""
        if not self.varies:
            return self.encode(values, memory)
        size = values.shape[0]
        counts = tf.constant([math.ceil(density * size) for density in self.densities()], tf.int32)
        epoch = tf.minimum(update // self.updates_an_epoch, self.warmup_epochs)
        return self._encoded(values, memory, counts[tf.cast(epoch, tf.int32)])

    def encode(self, values: Any, memory: Any) -> tuple[Any, Any]:
        """Return the largest accumulated values by falling magnitude, then their int32 indices."""
        return self._encoded(values, memory, self.sent(values.shape[0]))

    def _encoded(self, values: Any, memory: Any, count: Any) -> tuple[Any, Any]:
        if self.momentum:
            velocity = self.momentum * memory[0] + values
        else:
            velocity = values
        residual = memory[-1] + velocity
        indices = tf.math.top_k(tf.abs(residual), count).indices
        largest = tf.gather(residual, indices)
        if self.momentum:
            rows = [velocity, residual]
        else:
            rows = [residual]
        new_memory = [
            tf.tensor_scatter_nd_update(row, indices[:, tf.newaxis], tf.zeros_like(largest))
            for row in rows
        ]
        return tf.concat([largest, tf.bitcast(indices, tf.float32)], 0), tf.stack(new_memory)

    def decode(self, wire: Any, size: int) -> Any:
        """The sent values at their places, zeros elsewhere."""
        largest, indices = tf.split(wire, 2 if self.varies else [self.sent(size)] * 2)
        places = tf.bitcast(indices, tf.int32)[:, tf.newaxis]
        return tf.tensor_scatter_nd_update(tf.zeros([size]), places, largest)
