"""Parameters that single pushes update: the ledger drops duplicates, staleness lowers the rate.

The coordinator traces all of this into the workers' functions and stores nothing. A push does, on the parameter server
and in this order: wait for the update, take the shard's lock, look up the update's id in the ledger, apply and mark a
new update, drop another. The lock comes after everything that the worker sends. So a push is one tensor, identifier and
learning rate included: a worker that stops between two tensors would hold the lock and block all others (measured).
Between lock and mark nothing waits for the network, so a worker that dies cannot leave an update applied and unmarked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cluster.lazy import tf
from cluster.parameters import STATISTICS_RATE, Layout, Shard
from ps_node.optimizers.optimizer import Optimizer
from ps_node.shard import APPLIED, LEDGER_SLOTS, PlacedVector, ShardOnServer, VectorState, Wire, ledger_of

HEADER = 5
"""Elements at the end of a pushed tensor: the halves of the id, those of the version pulled, and the learning rate."""

TURN_WORDS = 4
"""Elements behind these, where workers keep something: the halves of the sender's number and of its turn."""

REFUSED = -1
"""The answer to a push whose sender has begun a later one: the shard neither applies nor marks it."""


@dataclass(frozen=True)
class PushOutcome:
    """The result of one push over all shards: int64 scalars."""

    fresh: Any
    """Shards that applied the update (0: all dropped it as a duplicate), or REFUSED."""
    staleness: Any
    """Updates that other workers applied between our pull and our push, at the first shard."""


class LedgerShard(ShardOnServer):
    """A shard with a ledger of the updates it has applied, and the last turn of each sender."""

    def __init__(
        self, shard: Shard, layout: Layout, state: VectorState, optimizer: Optimizer, place: str, wire: Wire,
        staleness_power: float, remembering: bool,
    ) -> None:  # fmt: skip
        super().__init__(shard, layout, state, optimizer, place, wire)
        self._staleness_power, self._remembering = staleness_power, remembering
        with tf.device(place):
            self.ledger = tf.Variable(ledger_of(state.next_id))
            # By sender: its present turn, and the last turn whose push was applied here.
            self.turns = remembering and tf.raw_ops.MutableHashTableOfTensorsV2(
                key_dtype=tf.int64, value_dtype=tf.int64, value_shape=[2], shared_name=f"turns_{self.unique_name}"
            )

    def take_turn(self, sender: Any, turn: Any) -> Any:
        """Refuse earlier turns of `sender` from now on; returns its last turn whose push was applied here, int64."""
        request = tf.stack([sender, turn])  # one tensor on its way to the server
        with tf.device(self.device):
            request = tf.identity(request)
            lock = self.locked([request])
            with tf.control_dependencies([lock]):
                applied = self._turn_of(request[0])[1]
                noted = self._note(request[0], request[1], applied)
            with tf.control_dependencies([noted]):
                return self.released(lock, tf.identity(applied))

    def _turn_of(self, sender: Any) -> Any:
        unknown = tf.zeros([2], tf.int64)
        found = tf.raw_ops.LookupTableFindV2(table_handle=self.turns, keys=sender[None], default_value=unknown)
        return tf.ensure_shape(found, [1, 2])[0]

    def _note(self, sender: Any, turn: Any, applied: Any) -> Any:
        return tf.raw_ops.LookupTableInsertV2(
            table_handle=self.turns, keys=sender[None], values=tf.stack([turn, applied])[None]
        )

    def push(self, update: Any, statistics_rate: float) -> Any:
        """Apply `update`: encoded gradient, new statistics, header. Returns int64 [fresh, updates before].

        `fresh` is 1, 0 for a duplicate, or REFUSED.
        """
        with tf.device(self.device):
            # Split here, on the parameter server and before the branches below. TensorFlow would place the switch of a
            # branch that takes `update` on the worker, which then sends everything twice while it holds the lock.
            words = -1 if self.wire.push.varies else self.wire.push.words(self.trained_size)
            header_words = HEADER + TURN_WORDS * self._remembering
            encoded, statistics, header = tf.split(update, [words, self.statistics_size, header_words])
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
                sender, turn, present = self._sent_by(header)

            def apply() -> Any:
                with tf.control_dependencies(self.applied(gradient, rate, statistics, statistics_rate)):
                    mark = tf.raw_ops.ResourceScatterUpdate(
                        resource=self.ledger.handle, indices=slot, updates=identifier
                    )
                    turns = [self._note(sender, turn, turn)] if self._remembering else []
                    with tf.control_dependencies([mark, self.count(1, 0), *turns]):
                        return tf.constant(1, tf.int64)

            applied = tf.cond(fresh & present, apply, self.dropped)
            return self.released(lock, tf.stack([tf.where(present, applied, REFUSED), before]))

    def _sent_by(self, header: Any) -> tuple[Any, Any, Any]:
        """The sender and turn of a push, and whether it is the sender's present turn."""
        if not self._remembering:
            none = tf.constant(0, tf.int64)
            return none, none, tf.constant(True)
        sender, turn = (tf.bitcast(header[begin : begin + 2], tf.int64) for begin in (HEADER, HEADER + 2))
        return sender, turn, tf.equal(self._turn_of(sender)[0], turn)

    def _share(self, staleness: Any) -> Any:
        """Zhang et al. (arXiv 1511.05950), equation 6: the rate is divided by the staleness, here to a power."""
        if not self._staleness_power:
            return tf.constant(1.0)
        return tf.pow(tf.cast(tf.maximum(staleness, 1), tf.float32), -self._staleness_power)


class ParameterShards(PlacedVector[LedgerShard]):
    """The whole vector; each push updates it."""

    def __init__(
        self, layout: Layout, state: VectorState, optimizer: Optimizer, places: Sequence[str], wire: Wire | None = None,
        *, statistics_rate: float = STATISTICS_RATE, staleness_power: float = 0.0, remembering: bool | None = None,
    ) -> None:  # fmt: skip
        """Place `state` on one device for each of `places`.

        Statistics follow new values by `statistics_rate` an update. An update that is t updates stale is applied with
        its learning rate divided by max(1, t) ** staleness_power. `remembering`: whether a push names its worker's
        turn, because workers keep something from push to push; None lets the codec decide.
        """
        self.wire = wire or Wire()
        self.remembering = not self.wire.push.stateless if remembering is None else remembering
        self._statistics_rate = statistics_rate
        make = partial(LedgerShard, staleness_power=staleness_power, remembering=self.remembering)
        super().__init__(layout, state, optimizer, places, self.wire, make)

    def encode(self, values: Any, memory: Any = None, update: Any = 0) -> tuple[list[Any], Any]:
        """Each shard's part of `values` [trained_size] as it travels, and the codec's new memory.

        `memory` is float32 [the codec's rows, trained_size], None for a codec without one; `update` is the update's
        number, int64.
        """
        encoded, remembered = [], []
        values = self.wire.push.limited(values)
        for shard in self.shards:
            mine = slice(*shard.shard.trained)
            kept = tf.zeros([0, shard.trained_size]) if memory is None else memory[:, mine]
            words, kept = shard.wire.push.encode_update(values[mine], kept, update)
            encoded.append(words)
            remembered.append(kept)
        return encoded, tf.concat(remembered, 1)

    def push(self, values: Any, statistics: Any, identifier: Any, rate: Any, versions: Any) -> PushOutcome:
        """Send `values` [trained_size] and new statistics [statistics_size] from a worker that keeps nothing."""
        return self.push_encoded(self.encode(values)[0], statistics, identifier, rate, versions)

    def push_encoded(
        self, encoded: Sequence[Any], statistics: Any, identifier: Any, rate: Any, versions: Any, turn: Any = None
    ) -> PushOutcome:
        """Send the result of `encode` and new statistics [statistics_size]: one tensor a shard.

        Workers that keep something give `turn`, int64 [sender, turn] (`worker_node.sender`).
        """
        said = [] if turn is None else [tf.reshape(tf.bitcast(turn, tf.float32), [TURN_WORDS])]
        outcomes = []
        for place, (shard, words) in enumerate(zip(self.shards, encoded, strict=True)):
            header = [tf.bitcast(identifier, tf.float32), tf.bitcast(versions[place], tf.float32), [rate], *said]
            update = tf.concat([words, statistics[slice(*shard.shard.statistics)], *header], 0)
            outcomes.append(tf.identity(shard.push(update, self._statistics_rate)))
        answers = tf.stack([outcome[0] for outcome in outcomes])
        refused = tf.reduce_any(tf.equal(answers, REFUSED))
        fresh = tf.where(refused, tf.constant(REFUSED, tf.int64), tf.reduce_sum(answers))
        return PushOutcome(fresh, outcomes[0][1] - versions[0])
