"""The parameters on the parameter servers: shards of the flat vector, their optimizer slots, and the ledger.

Everything here is traced into the workers' functions; nothing is stored on the coordinator. A push does, on the
parameter server and in this order: wait for the gradient, take the shard's lock, look the update's id up in the
ledger, apply and mark it if it is new, drop it if it is not. The lock comes after everything the worker sends, which
is why that is one tensor, identifier and learning rate included: a worker stopped while sending would otherwise hold
the lock and everybody up (measured). Between lock and mark nothing waits for the network, so a worker that dies cannot
leave an update applied and unmarked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.engine.lost import reaching_servers
from cluster.engine.optimizers import Optimizer
from cluster.engine.runtime import device
from cluster.parameters import Layout, Shard
from cluster.parameters.layout import Vector

import tensorflow as tf  # isort: skip

LEDGER_SLOTS = 65536
"""Ids the ledger tells apart. A duplicate is never applied; a new update is refused once the one this many ids after it
is in. At 200 updates a second that is five minutes behind the others: far more than a worker is waited for."""

HEADER = 3
"""Elements at the end of a pushed tensor: the identifier's two halves, and the learning rate."""


@dataclass(frozen=True)
class PushOutcome:
    """Of one push, over all shards: int64 scalars."""

    fresh: Any
    """Shards that applied the update (0: all dropped it as a duplicate)."""
    staleness: Any
    """Updates that others applied between our pull and our push, at the first shard."""


@dataclass(frozen=True)
class Totals:
    """What the shards counted."""

    applied: int
    """Updates applied by the shard that applied fewest."""
    duplicates_dropped: int
    """Pushes dropped by the shard that dropped most."""


class ShardOnServer:
    """One shard: its variables live on parameter server `shard.index`."""

    def __init__(self, shard: Shard, layout: Layout, vector: Vector, optimizer: Optimizer) -> None:
        self.shard, self.optimizer = shard, optimizer
        trained_size = layout.trained_size
        trained = vector[slice(*shard.trained)]
        statistics = vector[trained_size + shard.statistics[0] : trained_size + shard.statistics[1]]
        self.device = device("ps", shard.index)
        with tf.device(self.device):
            self.parameters = tf.Variable(trained, name=f"parameters_{shard.index}")
            self.slots = tuple(tf.Variable(tf.zeros([trained.size])) for _ in optimizer.slot_names)
            self.statistics = tf.Variable(statistics) if statistics.size else None
            self.ledger = tf.Variable(tf.fill([LEDGER_SLOTS], tf.constant(-1, tf.int64)))
            self.counts = tf.Variable(tf.zeros([3], tf.int64))  # applied, dropped, applied before the last reset
            # A name of this run's own: the lock of a run that was killed may still be held on the server.
            self.lock = tf.raw_ops.MutexV2(shared_name=f"shard_{shard.index}_{np.random.SeedSequence().entropy}")

    def reset(self, layout: Layout, vector: Vector) -> None:
        """Start over from `vector`; the ledger and its ids go on."""
        self.parameters.assign(vector[slice(*self.shard.trained)])
        for slot in self.slots:
            slot.assign(tf.zeros_like(slot))
        if self.statistics is not None:
            start, stop = self.shard.statistics
            self.statistics.assign(vector[layout.trained_size + start : layout.trained_size + stop])
        applied, dropped, _ = self.counts.numpy()
        self.counts.assign([applied, dropped, applied])

    def pull(self) -> Any:
        """One float32 tensor: parameters, statistics, and the number of updates so far in the last two elements."""
        with tf.device(self.device):
            version = tf.bitcast(self.counts.read_value()[0], tf.float32)
            with tf.control_dependencies([version]):
                parts = [self.parameters.read_value()]
                if self.statistics is not None:
                    parts.append(self.statistics.read_value())
            return tf.concat([*parts, version], 0)

    def push(self, update: Any, statistics_rate: float) -> Any:
        """Apply `update`: trained gradient, new statistics, header. Returns int64 [fresh, updates before]."""
        trained = self.shard.trained[1] - self.shard.trained[0]
        with tf.device(self.device):
            # Taken apart here, on the parameter server, and before the branches below: a branch that took `update`
            # would have its switch placed on the worker, which sends everything twice and holds the lock meanwhile.
            gradient, statistics, header = tf.split(update, [trained, -1, HEADER])
            with tf.control_dependencies([gradient, statistics, header]):
                lock = tf.raw_ops.MutexLock(mutex=self.lock)
            with tf.control_dependencies([lock]):
                identifier = tf.bitcast(header[:2], tf.int64)
                rate = header[2]
                slot = identifier % LEDGER_SLOTS
                seen = tf.raw_ops.ResourceGather(resource=self.ledger.handle, indices=slot, dtype=tf.int64)
                fresh = seen < identifier
                counts = self.counts.read_value()
                before = counts[0]

            def apply() -> Any:
                ops = [self.optimizer.apply(self.parameters, self.slots, gradient, rate, before - counts[2])]
                if self.statistics is not None:
                    change = statistics_rate * (statistics - self.statistics.read_value())
                    ops.append(self.statistics.assign_add(change, read_value=False))
                with tf.control_dependencies(ops):
                    mark = tf.raw_ops.ResourceScatterUpdate(
                        resource=self.ledger.handle, indices=slot, updates=identifier
                    )
                    count = self.counts.assign_add(tf.constant([1, 0, 0], tf.int64), read_value=False)
                with tf.control_dependencies([mark, count]):
                    return tf.constant(1, tf.int64)

            def drop() -> Any:
                with tf.control_dependencies(
                    [self.counts.assign_add(tf.constant([0, 1, 0], tf.int64), read_value=False)]
                ):
                    return tf.constant(0, tf.int64)

            applied = tf.cond(fresh, apply, drop)
            with tf.control_dependencies([applied]):
                release = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
            with tf.control_dependencies([release]):
                return tf.stack([applied, before])


class ParameterShards:
    """The whole vector, over all parameter servers."""

    def __init__(
        self, layout: Layout, vector: Vector, optimizer: Optimizer, servers: int, statistics_momentum: float = 0.9
    ) -> None:
        """Place `vector`, shape (layout.size,), on `servers` parameter servers.

        Statistics follow new values by `1 - statistics_momentum` an update.
        """
        self.layout = layout
        self._statistics_rate = 1.0 - statistics_momentum
        with reaching_servers():
            self.shards = [ShardOnServer(shard, layout, vector, optimizer) for shard in layout.shards(servers)]

    def pull(self) -> tuple[Any, Any, Any]:
        """(trained float32 [trained_size], statistics [statistics_size], version int64): one tensor a shard."""
        trained, statistics, version = [], [], None
        for shard in self.shards:
            pulled = tf.identity(shard.pull())
            size = shard.shard.trained[1] - shard.shard.trained[0]
            trained.append(pulled[:size])
            statistics.append(pulled[size:-2])
            if version is None:
                version = tf.bitcast(pulled[-2:], tf.int64)
        return tf.concat(trained, 0), tf.concat(statistics, 0), version

    def push(self, gradient: Any, statistics: Any, identifier: Any, rate: Any, version: Any) -> PushOutcome:
        """Send the gradient [trained_size] and new statistics [statistics_size]: one tensor a shard."""
        header = tf.concat([tf.bitcast(identifier, tf.float32), [rate]], 0)
        outcomes = []
        for shard in self.shards:
            part = [gradient[slice(*shard.shard.trained)], statistics[slice(*shard.shard.statistics)], header]
            outcomes.append(tf.identity(shard.push(tf.concat(part, 0), self._statistics_rate)))
        fresh = tf.add_n([outcome[0] for outcome in outcomes])
        return PushOutcome(fresh, outcomes[0][1] - version)

    def reset(self, vector: Vector) -> None:
        """Start over from `vector`, with fresh optimizer slots. Update ids go on from where they are."""
        with reaching_servers():
            for shard in self.shards:
                shard.reset(self.layout, vector)

    def read(self) -> Vector:
        """The whole vector as it is now, in layout order. Call it while nothing is pushed."""
        with reaching_servers():
            trained = [shard.parameters.numpy() for shard in self.shards]
            statistics = [shard.statistics.numpy() for shard in self.shards if shard.statistics is not None]
        return np.concatenate([*trained, *statistics]).astype("<f4", copy=False)

    def totals(self) -> Totals:
        """Updates applied and dropped so far."""
        with reaching_servers():
            counts: Sequence[np.ndarray] = [shard.counts.numpy() for shard in self.shards]
        return Totals(min(int(count[0]) for count in counts), max(int(count[1]) for count in counts))
