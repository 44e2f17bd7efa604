"""Parameters under synchronous steps: the same bits whoever computed which part of a step, on any number of servers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cluster.engine.lost import reaching_servers
from cluster.engine.reduction import Nodes, clipped
from cluster.parameters import Layout
from ps_node.optimizers.optimizer import Optimizer
from ps_node.placed_vector import PlacedVector
from ps_node.shard import VectorState, Wire
from ps_node.step_shard import StepShard

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

        Raises ValueError for a codec with a memory.
        """
        wire = wire or Wire()
        self.nodes = Nodes(wire.push)
        self.slots, self._clip_norm, self._statistics_rate = slots, clip_norm, statistics_rate
        cuts = layout.shards(len(places))
        with reaching_servers():
            shards = [
                StepShard(shard, layout, state, optimizer, place, wire, slots, self.nodes)
                for shard, place in zip(cuts, places, strict=True)
            ]
        super().__init__(layout, shards, state.next_id)

    def leaf(self, gradient: Any, statistics: Any) -> Any:
        """See Nodes; of the whole vector."""
        return self.nodes.leaf(gradient, statistics, self.layout.trained_size)

    def add(self, left: Any, right: Any) -> Any:
        """See Nodes; of the whole vector."""
        return self.nodes.add(left, right, self.layout.trained_size)

    def advance(self, step: Any, counted: Any, share: Any, rate: Any) -> Pulled:
        """Finish step `step` if nobody has yet, and pull.

        `counted`, float32 [slots], is 1 for each micro-batch that counts; `share` makes their sum a mean over the
        batch (1 if all of them count); `rate` is the step's learning rate.
        """
        halves = tf.bitcast(step, tf.float32)
        request = tf.concat([halves, counted], 0)
        squares = tf.concat([tf.identity(shard.close(request)) for shard in self.shards], 0)
        norm, scale = clipped(squares, share, self._clip_norm)
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
            encoded = self.nodes.encode(node[slice(*shard.shard.trained)], shard.trained_size)
            statistics = node[self.layout.trained_size + begin : self.layout.trained_size + end]
            fresh.append(tf.identity(shard.contribute(tf.concat([encoded, statistics, header], 0))))
        return tf.add_n(fresh)
