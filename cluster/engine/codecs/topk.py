"""`codec: topk`: the largest values alone; a worker keeps the others for later pushes."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from cluster.engine.codecs.codec import Codec
from cluster.inventory.fields import Choice, Fraction
from cluster.lazy import tf


class TopKCodec(Choice):
    """The largest gradients alone, the others kept for later, https://arxiv.org/abs/1712.01887: 8 bytes each."""

    name: Literal["topk"] = Field("topk", description="which codec this is")
    density: float = Field(0.01, gt=0.0, le=0.5, description="share of the gradient sent with each push")
    momentum: Fraction = Field(
        0.9, description="momentum on the worker, in place of the optimizer's; 0 with an optimizer that has its own"
    )


@dataclass(frozen=True)
class TopK(Codec):
    """The largest values alone; the others are kept and added to the next: Deep Gradient Compression.

    Lin et al., arXiv 1712.01887, sections 3.1 to 3.3 without the clipping and the warm-up: with the memory's rows
    velocity u and residual v, u = momentum u + gradient, v = v + u; the share `density` of v with the largest
    magnitudes is sent, and u and v are zeroed there. Of equal magnitudes the first are sent. Without momentum v alone
    is kept. Values must be finite.

    The momentum replaces the optimizer's: it belongs to plain gradient descent on the parameter servers.
    """

    density: float
    momentum: float = 0.0

    name = "topk"
    travels = "the largest values with their indices, 8 bytes each; a worker keeps the others for later"
    keeps_back = True
    Options = TopKCodec

    @property
    def memory_rows(self) -> int:
        """The residual, and the velocity if there is momentum."""
        return 2 if self.momentum else 1

    def sent(self, size: int) -> int:
        """How many of `size` values are sent: at least one of them."""
        return math.ceil(self.density * size)

    def words(self, size: int) -> int:
        """A value and an index each."""
        return 2 * self.sent(size)

    def encode(self, values: Any, memory: Any) -> tuple[Any, Any]:
        """The largest accumulated values in falling order of magnitude, then their int32 indices."""
        velocity = self.momentum * memory[0] + values if self.momentum else values
        residual = memory[-1] + velocity
        indices = tf.math.top_k(tf.abs(residual), self.sent(values.shape[0])).indices
        largest = tf.gather(residual, indices)
        rows = [velocity, residual] if self.momentum else [residual]
        kept = [tf.tensor_scatter_nd_update(row, indices[:, tf.newaxis], tf.zeros_like(largest)) for row in rows]
        return tf.concat([largest, tf.bitcast(indices, tf.float32)], 0), tf.stack(kept)

    def decode(self, wire: Any, size: int) -> Any:
        """The sent values at their places, zeros elsewhere."""
        largest, indices = tf.split(wire, [self.sent(size)] * 2)
        places = tf.bitcast(indices, tf.int32)[:, tf.newaxis]
        return tf.tensor_scatter_nd_update(tf.zeros([size]), places, largest)
