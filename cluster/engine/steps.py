"""Parameters under synchronous steps: the same bits whoever computed which part of a step, on any number of servers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cluster.engine.lost import reaching_servers
from cluster.engine.optimizers import Optimizer
from cluster.engine.placed_vector import PlacedVector
from cluster.engine.shard import VectorState, Wire
from cluster.engine.step_shard import StepShard
from cluster.parameters import BLOCK, Layout
from cluster.parameters.layout import Vector

import tensorflow as tf  # isort: skip


@dataclass(frozen=True)
class Pulled:
    """The parameters of a step: trained [trained_size], statistics [statistics_size].

    `norm` is that of the gradient of the step before, ahead of clipping.
    """

    trained: Any
    statistics: Any
    norm: Any


class StepShards(PlacedVector[StepShard]):
    """The whole vector, updated by one step after the other."""

    def __init__(
        self, layout: Layout, state: VectorState, optimizer: Optimizer, places: Sequence[str], wire: Wire | None = None,
        *, slots: int, clip_norm: float | None, statistics_rate: float = 0.1,
    ) -> None:  # fmt: skip
        """Place `state` on one device for each of `places`; a step has `slots` micro-batches.

        Raises ValueError for a codec that keeps something on the worker: the result would depend on who did what.
        """
        self._wire = wire or Wire()
        if self._wire.push.memory_rows or self._wire.pull.memory_rows:
            raise ValueError(f"synchronous steps need a codec without memory, not {self._wire.push.name}")
        self.slots, self._clip_norm, self._statistics_rate = slots, clip_norm, statistics_rate
        cuts = layout.shards(len(places))
        with reaching_servers():
            shards = [
                StepShard(shard, layout, state, optimizer, place, self._wire, slots,
                          partial(self._sum, trained_size=shard.trained[1] - shard.trained[0]))
                for shard, place in zip(cuts, places, strict=True)
            ]  # fmt: skip
        super().__init__(layout, shards, state.next_id)

    def leaf(self, gradient: Any, statistics: Any) -> Any:
        """A micro-batch's contribution as the tree adds it: rounded as it would travel, without negative zeros.

        A row that nobody sent counts as +0.0, and x + 0.0 has the bits of x for every x but -0.0.
        """
        rounded = self._rounded(gradient, self.layout.trained_size)
        return tf.concat([rounded, statistics], 0) + 0.0

    def add(self, left: Any, right: Any) -> Any:
        """Two nodes of the tree, whole vectors: their sum, rounded as it would travel."""
        return self._sum(left, right, self.layout.trained_size)

    def _sum(self, left: Any, right: Any, trained_size: int) -> Any:
        total = left + right
        if self._wire.push.name == "fp32":
            return total
        return tf.concat([self._rounded(total[:trained_size], trained_size), total[trained_size:]], 0) + 0.0

    def _rounded(self, gradient: Any, size: int) -> Any:
        codec = self._wire.push
        return codec.decode(codec.encode(gradient, tf.zeros([0, size]))[0], size)

    def advance(self, step: Any, counted: Any, share: Any, rate: Any) -> Pulled:
        """Finish step `step` if nobody has yet, and pull.

        `counted`, float32 [slots], is 1 for each micro-batch that counts; `share` makes their sum a mean over the
        batch (1 if all of them count); `rate` is the step's learning rate.
        """
        halves = tf.bitcast(step, tf.float32)
        request = tf.concat([halves, counted], 0)
        squares = tf.concat([tf.identity(shard.close(request)) for shard in self.shards], 0)
        norm = tf.sqrt(tf.reduce_sum(squares)) * share
        scale = share
        if self._clip_norm is not None:
            scale = share * (self._clip_norm / tf.maximum(norm, self._clip_norm))
        scale = tf.where(tf.math.is_finite(norm), scale, 0.0)
        request = tf.concat([halves, tf.stack([scale, share, rate])], 0)
        pulled = [tf.identity(shard.advance(request, self._statistics_rate)) for shard in self.shards]
        trained, statistics, _ = self._joined(pulled)
        return Pulled(trained, statistics, norm)

    def contribute(self, node: Any, step: Any, first: Any) -> Any:
        """Send a subtree's sum [trained_size + statistics_size]; how many shards had not got it yet, int64."""
        header = tf.concat([tf.bitcast(step, tf.float32), [tf.bitcast(first, tf.float32)]], 0)
        fresh = []
        for shard in self.shards:
            begin, end = shard.shard.statistics
            encoded, _ = self._wire.push.encode(node[slice(*shard.shard.trained)], tf.zeros([0, shard.trained_size]))
            statistics = node[self.layout.trained_size + begin : self.layout.trained_size + end]
            fresh.append(tf.identity(shard.contribute(tf.concat([encoded, statistics, header], 0))))
        return tf.add_n(fresh)


def block_norm(vector: Any, size: int) -> Any:
    """Euclidean norm of a vector of `size` elements, summed in blocks of 1,024 in layout order.

    The order of the additions depends on nothing but the layout, so that the norm has the same bits on any number of
    workers and shards.
    """
    padded = tf.pad(vector, [[0, -size % BLOCK]])
    return tf.sqrt(tf.reduce_sum(tf.reduce_sum(tf.square(tf.reshape(padded, [-1, BLOCK])), 1)))


__all__ = ["Pulled", "StepShards", "Vector", "block_norm"]
