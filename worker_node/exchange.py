"""Parameters on the workers: all-gather, reduce-scatter and update in one function.

Each worker holds a shard of the vector and of the optimizer's slots, as a parameter server would. A
step gathers the shards on every worker, and adds up each shard's part of the gradients on that
shard's worker, in the tree of all synchronous steps: the bits are the same.

The coordinator calls the function once a step. It must never run twice: the workers keep no ledger.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.engine.changes import reaching_holders
from core.ground.lazy import tf
from core.parameters import Layout
from ps_node.nodes import Nodes, Penalty, StepRecipe, arrived, clipped, sent, step_applied
from ps_node.optimizers import Optimizer
from ps_node.shard import PlacedVector, ShardOnServer, VectorState, Wire


@dataclass(frozen=True)
class PartialSum:
    """A subtree's sum, made on `place`; it begins at slot `first`.

    `node` is [trained_size + statistics_size].
    """

    first: int
    place: str
    node: Any


class ExchangedVector(PlacedVector[ShardOnServer]):
    """The whole vector, one shard a worker, on as many workers as there are blocks."""

    reaching = staticmethod(reaching_holders)

    def __init__(
        self,
        layout: Layout,
        state: VectorState,
        optimizer: Optimizer,
        places: Sequence[str],
        wire: Wire,
        *,
        recipe: StepRecipe,
    ) -> None:
        """Place `state` on the workers `places`. Raises ValueError for a codec with a memory."""
        self.nodes = Nodes(wire.push, layout.trained_size, recipe.arithmetic)
        self._recipe = recipe
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

    def reduce_and_apply(
        self, partial_sums: Sequence[PartialSum], rate: Any, generation: Any = 0
    ) -> Any:
        """Add up a step on the shards' workers and apply it.

        Returns the gradient's norm before clipping.

        A shard that was fenced since `generation`, int64, stays as it is.
        """
        arithmetic = self._recipe.arithmetic
        totals = [self._total(place, partial_sums) for place in range(len(self.shards))]
        squares = []
        for shard, total in zip(self.shards, totals, strict=True):
            with tf.device(shard.device):
                gradient = total[: shard.trained_size]
                squares.append(arithmetic.block_squares(gradient, shard.trained_size))
        with tf.device(self.shards[0].device):
            total_norm = arithmetic.norm(tf.concat(squares, 0))
            norm, scale = clipped(total_norm, tf.constant(1.0), self._recipe.clip_norm)
        applied = [
            self._applied(shard, total, tf.stack([scale, rate]), tf.cast(generation, tf.int64))
            for shard, total in zip(self.shards, totals, strict=True)
        ]
        with tf.control_dependencies(applied):
            return tf.identity(norm)

    def _applied(self, shard: ShardOnServer, total: Any, factors: Any, generation: Any) -> Any:
        """int64 1 once the total is applied to the shard, 0 if it is of another generation."""
        with tf.device(shard.device):
            factors = tf.identity(factors)
            local_generation = tf.identity(generation)
            lock = shard.locked([total, factors, local_generation])
            with tf.control_dependencies([lock]):
                current = shard.is_current(local_generation)

            def apply() -> Any:
                applied = step_applied(shard, total, factors[0], 1.0, factors[1])
                with tf.control_dependencies([applied]):
                    return tf.constant(1, tf.int64)

            return shard.released(lock, tf.cond(current, apply, shard.dropped))

    def _total(self, index: int, partial_sums: Sequence[PartialSum]) -> Any:
        """The sum of all parts' slices for one shard and the L2 term, on that shard's worker."""
        shard = self.shards[index]
        recipe = self._recipe
        nodes = Nodes(shard.wire.push, shard.trained_size, recipe.arithmetic)
        rows: dict[int, Any] = {}
        for part in partial_sums:
            with tf.device(part.place):
                travels = sent(part.node, shard, self.layout)
            with tf.device(shard.device):
                rows[part.first] = arrived(travels, shard)
        with tf.device(shard.device):
            missing = tf.zeros([shard.trained_size + shard.statistics_size])
            total = nodes.total(
                [rows.get(slot, missing) for slot in range(recipe.slots)],
                tf.constant([slot in rows for slot in range(recipe.slots)]),
            )
            penalty = Penalty.for_elements(recipe.l2, self.layout, shard.shard.trained)
            parameters = shard.parameters.read_value()
            gradient = penalty.added(total[: shard.trained_size], parameters)
            return tf.concat([gradient, total[shard.trained_size :]], 0)
