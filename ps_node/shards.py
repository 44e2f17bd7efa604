"""Parameters that single pushes update: the ledger drops duplicates, staleness lowers the rate.

The coordinator traces all of this into the workers' functions and stores nothing. A push does, on
the parameter server and in this order: wait for the update, take the shard's lock, look up the
update's id in the ledger, apply and mark a new update, drop another. The lock comes after
everything that the worker sends. So a push is one tensor, identifier and learning rate included: a
worker that stops between two tensors would hold the lock and block all others (measured). Between
lock and mark nothing waits for the network, so a worker that dies cannot leave an update applied
and unmarked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.ground.lazy import tf
from core.parameters import STATISTICS_RATE, Layout, Shard
from ps_node.optimizers import Optimizer
from ps_node.shard import (
    APPLIED,
    LEDGER_SLOTS,
    PlacedVector,
    ShardOnServer,
    VectorState,
    Wire,
    ledger_of,
)

HEADER = 8
"""Elements at the end of a pushed tensor: the halves of the id, those of the version pulled and of
the generation, the learning rate and that of the statistics."""

TURN_WORDS = 4
"""Elements behind these, where workers keep something: the halves of the sender's number and of its
turn."""

REFUSED = -1
"""The answer to a push whose sender has begun a later one: the shard neither applies nor marks it.
"""


LATE = -2
"""The answer to a push whose place in the ledger a newer update has: whether it was applied is not
known any more."""


@dataclass(frozen=True)
class Header:
    """What a push says of its update.

    `identifier` is int64, `rate` the float32 learning rate, `versions` int64 [shards], as pulled.
    `generation`, int64, is that of the shards when the update's item was made. `statistics_rate`,
    float32, is the share by which the shards' statistics follow the new ones. `workers`, float32,
    is how many were in the cluster when the item was made; it does not travel.
    """

    identifier: Any
    rate: Any
    versions: Any
    generation: Any = 0
    statistics_rate: Any = STATISTICS_RATE
    workers: Any = 1.0

    def words(self, place: int) -> list[Any]:
        """Float32 elements for the shard at `place`."""
        halves = [self.identifier, self.versions[place], tf.cast(self.generation, tf.int64)]
        return [
            *(tf.bitcast(number, tf.float32) for number in halves),
            [self.rate, self.statistics_rate],
        ]


@dataclass(frozen=True)
class PushOutcome:
    """The result of one push over all shards: int64 scalars."""

    fresh: Any
    """Shards that applied the update (0: all dropped it, as a duplicate or from before a fence), or
    REFUSED."""
    staleness: Any
    """Updates that other workers applied between our pull and our push, at the first shard."""


class LedgerShard(ShardOnServer):
    """A shard with a ledger of the updates it has applied, and the last turn of each sender."""

    def __init__(
        self,
        shard: Shard,
        layout: Layout,
        state: VectorState,
        optimizer: Optimizer,
        place: str,
        wire: Wire,
        staleness_power: float,
        remembering: bool,
    ) -> None:
        super().__init__(shard, layout, state, optimizer, place, wire)
        self._staleness_power = staleness_power
        self._remembering = remembering
        with tf.device(place):
            self.ledger = tf.Variable(ledger_of(state.next_id))
            # By sender: its present turn, and the last turn whose push was applied here.
            self.turns = remembering and tf.raw_ops.MutableHashTableOfTensorsV2(
                key_dtype=tf.int64,
                value_dtype=tf.int64,
                value_shape=[2],
                shared_name=f"turns_{self.unique_name}",
            )

    def take_turn(self, sender: Any, turn: Any, generation: Any = 0) -> Any:
        """Refuse earlier turns of `sender` from now on.

        Returns its last turn whose push was applied here, int64.

        A call of another generation than the shard's refuses nothing.
        """
        request = tf.stack(
            [sender, turn, tf.cast(generation, tf.int64)]
        )  # one tensor on its way to the server
        with tf.device(self.device):
            request = tf.identity(request)
            lock = self.locked([request])
            with tf.control_dependencies([lock]):
                present, applied = tf.unstack(self._turn_of(request[0]))
                # A late call of an earlier turn must not refuse the present one's push.
                now = tf.where(
                    self.is_current(request[2]), tf.maximum(request[1], present), present
                )
                noted = self._note(request[0], now, applied)
            with tf.control_dependencies([noted]):
                return self.released(lock, tf.identity(applied))

    def _turn_of(self, sender: Any) -> Any:
        unknown = tf.zeros([2], tf.int64)
        turn = tf.raw_ops.LookupTableFindV2(
            table_handle=self.turns, keys=sender[None], default_value=unknown
        )
        return tf.ensure_shape(turn, [1, 2])[0]

    def _note(self, sender: Any, turn: Any, applied: Any) -> Any:
        return tf.raw_ops.LookupTableInsertV2(
            table_handle=self.turns, keys=sender[None], values=tf.stack([turn, applied])[None]
        )

    def push(self, update: Any) -> Any:
        """Apply `update`: encoded gradient, new statistics, header.

        Returns int64 [fresh, updates before].

        `fresh` is 1, 0 for a duplicate and for an update of another generation, LATE or REFUSED.
        """
        with tf.device(self.device):
            # Split here, on the parameter server and before the branches below. TensorFlow would
            # place the switch of a branch that takes `update` on the worker, which then sends
            # everything twice while it holds the lock.
            if self.wire.push.varies:
                encoded_words = -1
            else:
                encoded_words = self.wire.push.words(self.trained_size)
            header_words = HEADER + TURN_WORDS * self._remembering
            encoded, statistics, header = tf.split(
                update, [encoded_words, self.statistics_size, header_words]
            )
            gradient = self.wire.push.decode(encoded, self.trained_size)
            lock = self.locked([gradient, statistics, header])
            with tf.control_dependencies([lock]):
                identifier = tf.bitcast(header[:2], tf.int64)
                slot = identifier % LEDGER_SLOTS
                last_identifier = tf.raw_ops.ResourceGather(
                    resource=self.ledger.handle, indices=slot, dtype=tf.int64
                )
                fresh = last_identifier < identifier
                before = self.counts.read_value()[APPLIED]
                staleness = before - tf.bitcast(header[2:4], tf.int64)
                current = self.is_current(tf.bitcast(header[4:6], tf.int64))
                rate = header[6] * self._share(staleness)
                statistics_rate = header[7]
                sender, turn, present = self._sent_by(header)

            def apply() -> Any:
                with tf.control_dependencies(
                    self.applied(gradient, rate, statistics, statistics_rate)
                ):
                    mark = tf.raw_ops.ResourceScatterUpdate(
                        resource=self.ledger.handle, indices=slot, updates=identifier
                    )
                    if self._remembering:
                        turns = [self._note(sender, turn, turn)]
                    else:
                        turns = []
                    with tf.control_dependencies([mark, self.count(1, 0), *turns]):
                        return tf.constant(1, tf.int64)

            applied = tf.cond(fresh & present & current, apply, self.dropped)
            late = current & (last_identifier > identifier)
            answer = tf.where(late, tf.constant(LATE, tf.int64), applied)
            answer = tf.where(present | ~current, answer, REFUSED)
            return self.released(lock, tf.stack([answer, before]))

    def _sent_by(self, header: Any) -> tuple[Any, Any, Any]:
        """The sender and turn of a push, and whether it is the sender's present turn."""
        if not self._remembering:
            none = tf.constant(0, tf.int64)
            return none, none, tf.constant(True)
        sender, turn = (
            tf.bitcast(header[begin : begin + 2], tf.int64) for begin in (HEADER, HEADER + 2)
        )
        return sender, turn, tf.equal(self._turn_of(sender)[0], turn)

    def _share(self, staleness: Any) -> Any:
        """Return the share of the rate that is left: 1, divided by a power of the staleness.

        Zhang et al. (arXiv 1511.05950), equation 6, divide by the staleness itself.
        """
        if not self._staleness_power:
            return tf.constant(1.0)
        return tf.pow(tf.cast(tf.maximum(staleness, 1), tf.float32), -self._staleness_power)


class ParameterShards(PlacedVector[LedgerShard]):
    """The whole vector; each push updates it."""

    def __init__(
        self,
        layout: Layout,
        state: VectorState,
        optimizer: Optimizer,
        places: Sequence[str],
        wire: Wire | None = None,
        *,
        staleness_power: float = 0.0,
        remembering: bool | None = None,
    ) -> None:
        """Place `state` on one device for each of `places`.

        An update that is t updates stale is applied with its learning rate divided by max(1, t) **
        staleness_power. `remembering`: whether a push names its worker's turn, because workers keep
        something from push to push; None lets the codec decide.
        """
        self.wire = wire or Wire()
        if remembering is None:
            self.remembering = not self.wire.push.stateless
        else:
            self.remembering = remembering
        make = partial(LedgerShard, staleness_power=staleness_power, remembering=self.remembering)
        super().__init__(layout, state, optimizer, places, self.wire, make)

    def encode(self, values: Any, header: Header, memory: Any = None) -> tuple[list[Any], Any]:
        """Each shard's part of `values` [trained_size] as it travels, and the codec's new memory.

        `memory` is float32 [the codec's rows, trained_size], None for a codec without one.
        """
        encoded = []
        remembered = []
        values = self.wire.push.limited(values, header.workers)
        for shard in self.shards:
            trained_slice = slice(*shard.shard.trained)
            if memory is None:
                shard_memory = tf.zeros([0, shard.trained_size])
            else:
                shard_memory = memory[:, trained_slice]
            encoded_update, shard_memory = shard.wire.push.encode_update(
                values[trained_slice], shard_memory, header.identifier
            )
            encoded.append(encoded_update)
            remembered.append(shard_memory)
        return encoded, tf.concat(remembered, 1)

    def push(self, values: Any, statistics: Any, header: Header) -> PushOutcome:
        """Send `values` [trained_size] and statistics from a worker that keeps nothing.

        The new statistics are [statistics_size].
        """
        return self.push_encoded(self.encode(values, header)[0], statistics, header)

    def push_encoded(
        self, encoded: Sequence[Any], statistics: Any, header: Header, turn: Any = None
    ) -> PushOutcome:
        """Send the result of `encode` and new statistics [statistics_size]: one tensor a shard.

        Workers that keep something give `turn`, int64 [sender, turn] (`worker_node.sender`).
        """
        if turn is None:
            turn_words = []
        else:
            turn_words = [tf.reshape(tf.bitcast(turn, tf.float32), [TURN_WORDS])]
        outcomes = []
        for place, (shard, encoded_update) in enumerate(zip(self.shards, encoded, strict=True)):
            shard_statistics = statistics[slice(*shard.shard.statistics)]
            update = tf.concat(
                [encoded_update, shard_statistics, *header.words(place), *turn_words], 0
            )
            outcomes.append(tf.identity(shard.push(update)))
        answers = tf.stack([outcome[0] for outcome in outcomes])
        not_late = tf.debugging.Assert(
            tf.reduce_all(tf.not_equal(answers, LATE)),
            [
                (
                    f"the update came more than {LEDGER_SLOTS} updates late: whether it was applied"
                    " is not known"
                ),
                header.identifier,
            ],
        )
        with tf.control_dependencies([not_late]):
            answers = tf.identity(answers)
        refused = tf.reduce_any(tf.equal(answers, REFUSED))
        fresh = tf.where(refused, tf.constant(REFUSED, tf.int64), tf.reduce_sum(answers))
        return PushOutcome(fresh, outcomes[0][1] - header.versions[0])
