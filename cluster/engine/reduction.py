"""The arithmetic of a synchronous step: rounding and adding partial sums, and the clip norm."""

from typing import Any

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.engine.codecs.codec import Codec
from cluster.engine.codecs.fp32 import Fp32
from cluster.parameters import BLOCK

import tensorflow as tf  # isort: skip


class Nodes:
    """Arithmetic of the reduction tree's nodes: [gradient | statistics], rounded at every sum as on the wire."""

    def __init__(self, codec: Codec) -> None:
        """Raises ValueError for a codec with a memory: the result would depend on which worker did what."""
        if not codec.stateless:
            raise ValueError(f"synchronous steps need a codec without memory, not {codec.name}")
        self._codec = codec

    def leaf(self, gradient: Any, statistics: Any, trained_size: int) -> Any:
        """A micro-batch's contribution: rounded as on the wire, without negative zeros.

        A missing part counts as +0.0, and x + 0.0 has the bits of x for every x but -0.0.
        """
        return tf.concat([self.rounded(gradient, trained_size), statistics], 0) + 0.0

    def add(self, left: Any, right: Any, trained_size: int) -> Any:
        """The sum of two nodes whose first `trained_size` elements are the gradient."""
        total = left + right
        if isinstance(self._codec, Fp32):
            return total
        return tf.concat([self.rounded(total[:trained_size], trained_size), total[trained_size:]], 0) + 0.0

    def encode(self, gradient: Any, size: int) -> Any:
        """A rounded gradient as it travels."""
        return self._codec.encode(gradient, tf.zeros([0, size]))[0]

    def decode(self, encoded: Any, size: int) -> Any:
        """The gradient that `encode` was given."""
        return self._codec.decode(encoded, size)

    def words(self, size: int) -> int:
        """Elements that travel for a gradient of `size`."""
        return self._codec.words(size)

    def rounded(self, gradient: Any, size: int) -> Any:
        """The gradient as it arrives."""
        return self.decode(self.encode(gradient, size), size)


def clipped(squares: Any, share: Any, clip_norm: float | None) -> tuple[Any, Any]:
    """The norm of a total times `share`, and the factor of the total: 0 if it is not finite.

    `squares` is the total's sum of squares by block, over all shards in layout order.
    """
    norm = tf.sqrt(tf.reduce_sum(squares)) * share
    scale = share if clip_norm is None else share * (clip_norm / tf.maximum(norm, clip_norm))
    return norm, tf.where(tf.math.is_finite(norm), scale, 0.0)


def block_squares(gradient: Any, size: int) -> Any:
    """Sums of squares of the blocks of 1,024 elements of a vector of `size`, float32 [blocks]."""
    padded = tf.pad(gradient, [[0, -size % BLOCK]])
    return tf.reduce_sum(tf.square(tf.reshape(padded, [-1, BLOCK])), 1)


def block_norm(vector: Any, size: int) -> Any:
    """Euclidean norm of a vector of `size` elements, summed in blocks of 1,024 in layout order.

    The order of the additions depends on nothing but the layout, so that the norm has the same bits on any number of
    workers and shards.
    """
    return tf.sqrt(tf.reduce_sum(block_squares(vector, size)))
