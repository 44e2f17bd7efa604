"""A worker's side of a push that it has to remember: exactly once, for what is sent and for what is kept back.

A codec such as top-k sends a part of its values and keeps the rest for the next push; `local` keeps an optimizer's
slots. What is kept must change exactly when the push is applied: if it changes with a push that a shard drops, or
stays with one that a shard applied, gradient is lost or counted twice. The worker cannot know from its own call, whose
reply may be lost. So each call

    takes a turn    in the worker's memory, and tells it to the shards: a shard answers with the last turn of this
                    worker that it applied, and refuses earlier turns from then on
    settles         each shard's slice of the memory: as offered by the last push, if the shard applied that one
    offers          what the memory becomes, before it pushes
    pushes          with its turn

A worker that dies takes what it kept with it, as the paper's workers do.
"""

from dataclasses import dataclass
from typing import Any

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from ps_node.shards import REFUSED, ParameterShards, PushOutcome
from worker_node.worker_memory import Remembered, Turn, WorkerMemory

import tensorflow as tf  # isort: skip


@dataclass(frozen=True)
class Begun:
    """A call that has its turn: whose memory it is (int64), the turn, and the settled memory."""

    owner: Any
    turn: Turn
    settled: Remembered

    @property
    def forgot(self) -> Any:
        """Whether the worker remembered nothing, float64 0 or 1: the run's first call on this process."""
        return tf.cast(tf.equal(self.turn.number, 1), tf.float64)


class Sender:
    """Pushes to `shards` from workers that remember `own` rows of a caller's, and what the codec keeps."""

    def __init__(self, shards: ParameterShards, own: int = 0) -> None:
        """Raises ValueError if there is something to remember and the shards were not made for that."""
        self.own, self._shards = own, shards
        self._memory = WorkerMemory(own + shards.wire.push.memory_rows, shards.layout.trained_size)
        if self._memory.rows and not shards.remembering:
            raise ValueError("ParameterShards: expected remembering=True, because the workers keep something: set it")

    def begin(self, owner: Any) -> Begun:
        """Take a turn and settle the memory. `owner` is int64, a number of this run's own."""
        memory = self._memory
        if not memory.rows:
            nothing = Remembered(tf.zeros([0, memory.size]), tf.constant(0, tf.int64))
            none = tf.constant(0, tf.int64)
            return Begun(owner, Turn(none, none, nothing, none, nothing), nothing)
        turn = memory.take(owner)
        pushed = turn.offered_turn > 0
        slices, settled = [], []
        for shard in self._shards.shards:
            applied = pushed & tf.equal(shard.take_turn(turn.sender, turn.number), turn.offered_turn)
            mine = slice(*shard.shard.trained)
            slices.append(tf.where(applied, turn.offered.rows[:, mine], turn.kept.rows[:, mine]))
            settled.append(applied)
        count = tf.where(tf.reduce_any(settled), turn.offered.count, turn.kept.count)
        return Begun(owner, turn, Remembered(tf.concat(slices, 1), count))

    def push(
        self, begun: Begun, values: Any, statistics: Any, identifier: Any, rate: Any, versions: Any,
        own: Any = None, steps: Any = 1,
    ) -> PushOutcome:  # fmt: skip
        """Send `values` [trained_size] and `statistics`; `own` are the caller's rows if the push is applied.

        `steps` is what the memory's count rises by. The call fails if a later one on this worker has begun.
        """
        if not self._memory.rows:
            return self._shards.push(values, statistics, identifier, rate, versions)
        settled = begun.settled
        encoded, codecs_rows = self._shards.encode(values, settled.rows[self.own :])
        rows = codecs_rows if own is None else tf.concat([own, codecs_rows], 0)
        then = Remembered(rows, settled.count + tf.cast(steps, tf.int64))
        with tf.control_dependencies([self._memory.offer(begun.owner, begun.turn, settled, then)]):
            turn = tf.stack([begun.turn.sender, begun.turn.number])
        outcome = self._shards.push_encoded(encoded, statistics, identifier, rate, versions, turn)
        heard = tf.debugging.Assert(tf.not_equal(outcome.fresh, REFUSED), ["a later call on this worker has begun"])
        with tf.control_dependencies([heard]):
            return PushOutcome(tf.identity(outcome.fresh), tf.identity(outcome.staleness))
