"""Parameters on the workers themselves: all-gather, reduce-scatter and update as ops placed in one function.

Each worker holds a shard of the vector and of the optimizer's slots, as a parameter server would. A step gathers the
shards on every worker, and adds up each shard's part of the gradients on that shard's worker, in the tree of all
synchronous steps: the bits are the same.

The coordinator calls the function once a step. It must never run twice: the workers keep no ledger.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cluster.consistency.policy import tree_sum
from cluster.engine.lost import reaching_holders
from cluster.lazy import tf
from cluster.parameters import STATISTICS_RATE, Layout
from ps_node.optimizers.optimizer import Optimizer
from ps_node.shard import PlacedVector, ShardOnServer, VectorState, Wire
from ps_node.steps import Nodes, arrived, block_squares, clipped, sent, step_applied


@dataclass(frozen=True)
class PartialSum:
    """A subtree's sum [trained_size + statistics_size], made on `place`; it begins at micro-batch `first`."""

    first: int
    place: str
    node: Any


class ExchangedVector(PlacedVector[ShardOnServer]):
    """The whole vector, one shard a worker, on as many workers as there are blocks."""

    reaching = staticmethod(reaching_holders)

    def __init__(
        self, layout: Layout, state: VectorState, optimizer: Optimizer, places: Sequence[str], wire: Wire,
        *, clip_norm: float | None, statistics_rate: float = STATISTICS_RATE,
    ) -> None:  # fmt: skip
        """Place `state` on the workers `places`. Raises ValueError for a codec with a memory."""
        self.nodes = Nodes(wire.push, layout.trained_size)
        self._clip_norm, self._statistics_rate = clip_norm, statistics_rate
        super().__init__(layout, state, optimizer, places[: layout.blocks], wire, ShardOnServer)

    def gather(self, places: Sequence[str]) -> list[tuple[Any, Any]]:
        """(trained, statistics) on each of `places`: reads every shard once and sends it to all."""
        read = [shard.read() for shard in self.shards]
        gathered = []
        for place in places:
            with tf.device(place):
                trained, statistics, _ = self._joined([tf.identity(tensor) for tensor in read])
            gathered.append((trained, statistics))
        return gathered

    def reduce_and_apply(self, parts: Sequence[PartialSum], slots: int, rate: Any) -> Any:
        """Add up a whole step on the shards' workers and apply it; returns the gradient's norm before clipping."""
        totals = [self._total(place, parts, slots) for place in range(len(self.shards))]
        squares = []
        for shard, total in zip(self.shards, totals, strict=True):
            with tf.device(shard.device):
                squares.append(block_squares(total[: shard.trained_size], shard.trained_size))
        with tf.device(self.shards[0].device):
            norm, scale = clipped(tf.concat(squares, 0), tf.constant(1.0), self._clip_norm)
        applied = []
        for shard, total in zip(self.shards, totals, strict=True):
            with tf.device(shard.device):
                applied.append(step_applied(shard, total, scale, 1.0, rate, self._statistics_rate))
        with tf.control_dependencies(applied):
            return tf.identity(norm)

    def _total(self, index: int, parts: Sequence[PartialSum], slots: int) -> Any:
        """The sum of all parts' slices for one shard, on that shard's worker."""
        shard = self.shards[index]
        nodes = Nodes(shard.wire.push, shard.trained_size)
        rows: list[Any] = [None] * slots
        for part in parts:
            with tf.device(part.place):
                travels = sent(part.node, shard, self.layout)
            with tf.device(shard.device):
                rows[part.first] = arrived(travels, shard)

        def add(left: Any, right: Any) -> Any:
            if left is None or right is None:
                return right if left is None else left
            return nodes.add(left, right)

        with tf.device(shard.device):
            return tree_sum(rows, add)
