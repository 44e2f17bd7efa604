"""Parameters under updates that are pushes of their own: the ledger, and what staleness does to the step.

Everything here is traced into the workers' functions; nothing is stored on the coordinator. A push does, on the
parameter server and in this order: wait for the update, take the shard's lock, look the update's id up in the
ledger, apply and mark it if it is new, drop it if it is not. The lock comes after everything the worker sends, which
is why that is one tensor, identifier and learning rate included: a worker stopped while sending would otherwise hold
the lock and everybody up (measured). Between lock and mark nothing waits for the network, so a worker that dies cannot
leave an update applied and unmarked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cluster.engine.lost import reaching_servers
from cluster.engine.optimizers import Optimizer
from cluster.engine.placed_vector import PlacedVector
from cluster.engine.shard import APPLIED, LEDGER_SLOTS, ShardOnServer, VectorState, Wire, ledger_of
from cluster.parameters import Layout, Shard

import tensorflow as tf  # isort: skip

HEADER = 5
"""Elements at the end of a pushed tensor: the halves of the id, those of the version pulled, and the learning rate."""


@dataclass(frozen=True)
class PushOutcome:
    """Of one push, over all shards: int64 scalars."""

    fresh: Any
    """Shards that applied the update (0: all dropped it as a duplicate)."""
    staleness: Any
    """Updates that others applied between our pull and our push, at the first shard."""


class LedgerShard(ShardOnServer):
    """A shard that remembers which updates it has applied."""

    def __init__(
        self, shard: Shard, layout: Layout, state: VectorState, optimizer: Optimizer, place: str, wire: Wire,
        staleness_power: float,
    ) -> None:  # fmt: skip
        super().__init__(shard, layout, state, optimizer, place, wire)
        self._staleness_power = staleness_power
        with tf.device(place):
            self.ledger = tf.Variable(ledger_of(state.next_id))

    def push(self, update: Any, statistics_rate: float) -> Any:
        """Apply `update`: encoded gradient, new statistics, header. Returns int64 [fresh, updates before]."""
        with tf.device(self.device):
            # Taken apart here, on the parameter server, and before the branches below: a branch that took `update`
            # would have its switch placed on the worker, which sends everything twice and holds the lock meanwhile.
            words = self.wire.push.words(self.trained_size)
            encoded, statistics, header = tf.split(update, [words, self.statistics_size, HEADER])
            gradient = self.wire.push.decode(encoded, self.trained_size)
            lock = self.locked([gradient, statistics, header])
            with tf.control_dependencies([lock]):
                identifier = tf.bitcast(header[:2], tf.int64)
                slot = identifier % LEDGER_SLOTS
                seen = tf.raw_ops.ResourceGather(resource=self.ledger.handle, indices=slot, dtype=tf.int64)
                fresh = seen < identifier
                before = self.counts.read_value()[APPLIED]
                staleness = before - tf.bitcast(header[2:4], tf.int64)
                rate = header[4] * self._share(staleness)

            def apply() -> Any:
                with tf.control_dependencies(self.applied(gradient, rate, statistics, statistics_rate)):
                    mark = tf.raw_ops.ResourceScatterUpdate(
                        resource=self.ledger.handle, indices=slot, updates=identifier
                    )
                    with tf.control_dependencies([mark, self.count(1, 0)]):
                        return tf.constant(1, tf.int64)

            applied = tf.cond(fresh, apply, self.dropped)
            with tf.control_dependencies([applied]):
                release = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
            with tf.control_dependencies([release]):
                return tf.stack([applied, before])

    def _share(self, staleness: Any) -> Any:
        """Zhang et al. (arXiv 1511.05950), equation 6: the rate is divided by the staleness, here to a power."""
        if not self._staleness_power:
            return tf.constant(1.0)
        return tf.pow(tf.cast(tf.maximum(staleness, 1), tf.float32), -self._staleness_power)


class ParameterShards(PlacedVector[LedgerShard]):
    """The whole vector, updated by one push after the other."""

    def __init__(
        self, layout: Layout, state: VectorState, optimizer: Optimizer, places: Sequence[str], wire: Wire | None = None,
        *, statistics_rate: float = 0.1, staleness_power: float = 0.0,
    ) -> None:  # fmt: skip
        """Place `state` on one device for each of `places`.

        Statistics follow new values by `statistics_rate` an update. An update that is t updates stale is applied with
        its learning rate divided by max(1, t) ** staleness_power.
        """
        with reaching_servers():
            shards = [
                LedgerShard(shard, layout, state, optimizer, place, wire or Wire(), staleness_power)
                for shard, place in zip(layout.shards(len(places)), places, strict=True)
            ]
        super().__init__(layout, shards, state.next_id)
        self._statistics_rate = statistics_rate

    def push(
        self, gradient: Any, statistics: Any, identifier: Any, rate: Any, versions: Any, memory: Any = None
    ) -> tuple[PushOutcome, Any]:
        """Send the gradient [trained_size] and new statistics [statistics_size]: one tensor a shard.

        `memory`, float32 [rows, trained_size], is what the codec keeps on the worker; its new value is returned too.
        """
        outcomes, remembered = [], []
        for place, shard in enumerate(self.shards):
            mine = slice(*shard.shard.trained)
            kept = tf.zeros([0, shard.trained_size]) if memory is None else memory[:, mine]
            encoded, kept = shard.wire.push.encode(gradient[mine], kept)
            header = [tf.bitcast(identifier, tf.float32), tf.bitcast(versions[place], tf.float32), [rate]]
            update = tf.concat([encoded, statistics[slice(*shard.shard.statistics)], *header], 0)
            outcomes.append(tf.identity(shard.push(update, self._statistics_rate)))
            remembered.append(kept)
        fresh = tf.add_n([outcome[0] for outcome in outcomes])
        return PushOutcome(fresh, outcomes[0][1] - versions[0]), tf.concat(remembered, 1)
