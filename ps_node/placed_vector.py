"""The whole vector over all its shards, whoever updates them: reading, resetting, what was counted."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import numpy as np

from cluster.engine.lost import reaching_servers
from cluster.parameters import Layout
from cluster.parameters.layout import Vector
from ps_node.shard import APPLIED, DROPPED, OPTIMIZER_UPDATES, ShardOnServer, Totals, VectorState

import tensorflow as tf  # isort: skip

SomeShard = TypeVar("SomeShard", bound=ShardOnServer)


class PlacedVector(Generic[SomeShard]):
    """Shards of one vector, in order."""

    reaching: Callable[[], AbstractContextManager[None]] = staticmethod(reaching_servers)
    """Around calls to whoever holds the shards."""

    def __init__(self, layout: Layout, shards: Sequence[SomeShard], start: int) -> None:
        """`start`: the number of updates that were applied before these shards existed."""
        self.layout, self.shards = layout, tuple(shards)
        self._start = start

    def pull(self, *, exact: bool = False) -> tuple[Any, Any, Any]:
        """(trained float32 [trained_size], statistics [statistics_size], versions int64 [shards]), in a graph.

        The parameters as the wire's codec gives them, or every bit of them.
        """
        pulled = [tf.identity(shard.read(exact=exact)) for shard in self.shards]
        return self._joined(pulled, exact=exact)

    def _joined(self, pulled: Sequence[Any], *, exact: bool = False) -> tuple[Any, Any, Any]:
        parts = [shard.unpack(tensor, exact=exact) for shard, tensor in zip(self.shards, pulled, strict=True)]
        trained, statistics, versions = zip(*parts, strict=True)
        return tf.concat(trained, 0), tf.concat(statistics, 0), tf.stack(versions)

    def reset(self, vector: Vector) -> None:
        """Start over from `vector`, with fresh optimizer slots. Update ids go on from where they are."""
        with self.reaching():
            for shard in self.shards:
                shard.reset(self.layout, VectorState(vector))

    def read(self) -> Vector:
        """The whole vector as it is now, in layout order. Call it while nothing is pushed."""
        with self.reaching():
            trained = [shard.parameters.numpy() for shard in self.shards]
            statistics = [shard.statistics.numpy() for shard in self.shards if shard.statistics is not None]
        return np.concatenate([*trained, *statistics]).astype("<f4", copy=False)

    def state(self) -> VectorState:
        """All there is, to go on from later. Call it while nothing is pushed."""
        vector = self.read()
        with self.reaching():
            counts = self._counts()
            names = self.shards[0].optimizer.slot_names
            slots = {
                name: np.concatenate([shard.slots[place].numpy() for shard in self.shards])
                for place, name in enumerate(names)
            }
        if len({(int(count[APPLIED]), int(count[OPTIMIZER_UPDATES])) for count in counts}) > 1:
            raise RuntimeError(f"the shards are not at one cut: they have applied {[int(c[APPLIED]) for c in counts]}")
        return VectorState(vector, slots, int(counts[0][OPTIMIZER_UPDATES]), int(counts[0][APPLIED]))

    def totals(self) -> Totals:
        """Updates applied and dropped so far by these shards."""
        with self.reaching():
            counts = self._counts()
        applied = min(int(count[APPLIED]) for count in counts) - self._start
        return Totals(applied, max(int(count[DROPPED]) for count in counts))

    def _counts(self) -> list[Any]:
        return [shard.counts.numpy() for shard in self.shards]
