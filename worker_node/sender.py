"""The worker's side of a push that holds something back, exactly once.

Each push counts exactly once for what it sends and for what the worker keeps.

A codec such as top-k sends a part of its values and keeps the rest for the next push; `local` keeps
an optimizer's slots. The memory must change exactly when the push is applied: if it changes with a
push that a shard drops, or stays although a shard applied the push, gradient is lost or counted
twice. The worker's own call cannot know, because its reply may be lost. So each call

    takes a turn    in the worker's memory and names it to the shards: a shard answers with the last
                    turn of this worker that it applied, and refuses earlier turns from then on
    settles         each shard's slice of the memory: as the last push offered it, if the shard
                    applied that push
    offers          what the memory becomes, before it pushes
    pushes          with its turn

A worker that dies loses what it kept, as the paper's workers do.
"""

from dataclasses import dataclass, replace
from typing import Any

from core.engine.workers import OVERTAKEN
from core.ground.lazy import tf
from ps_node.shards import REFUSED, Header, ParameterShards, PushOutcome

NAME = "pscluster_worker_memory"

OWNER, GENERATION, SENDER, TURN, OFFERED, COUNT, OFFERED_COUNT = range(7)
"""Places in the memory's header."""


@dataclass(frozen=True)
class Remembered:
    """`rows`, float32 (rows, size), and the number of steps in them, int64; zeros at first."""

    rows: Any
    count: Any


@dataclass(frozen=True)
class Turn:
    """One call's turn: int64 scalars but for the two memories.

    `sender` is a random number of this memory's own, `number` counts its calls from 1. `previous`
    is the memory before the push of turn `offered_turn`, `offered` after it; 0 without a push.
    """

    sender: Any
    number: Any
    previous: Remembered
    offered_turn: Any
    offered: Remembered


class WorkerMemory:
    """What stays on a worker between calls: `rows` float32 vectors of `size`.

    Each worker process has one set. A function finds it by name on the worker that it runs on, so
    one trace serves all workers. It ends with the worker's process, and starts at zero on a worker
    that has none of this run.

    Its `owner` is int64 [2]: a number of the run's own, and the generation of the run's shards. A
    later generation starts at zero too, and a call of an earlier one, which may wake up beside it,
    finds zeros and changes nothing.

    A call changes it in two steps, because the reply to a push can get lost. `offer` writes what
    the memory becomes if the push is applied, beside what it is. The next call's `take` gets both
    and asks the shards which of them holds. Each call takes a turn, a number that only rises; only
    the call with the latest turn can offer anything.
    """

    def __init__(self, rows: int, size: int) -> None:
        self.rows = rows
        self.size = size

    def next_turn(self, owner: Any) -> Turn:
        """Take the next turn in the worker's memory for `owner`, in a graph."""
        previous, offered, header = _handles()
        lock = _locked([owner])
        with tf.control_dependencies([lock]):
            drawn = tf.raw_ops.RandomUniformInt(
                shape=tf.constant([], tf.int32),
                minval=tf.constant(1, tf.int64),
                maxval=tf.constant(1 << 62, tf.int64),
                seed=0,
                seed2=0,
            )
            before = _read_header(header)
            is_owner = tf.reduce_all(tf.equal(before[:SENDER], owner))
            over = _is_over(before, owner)
            current = tf.where(
                is_owner, before, tf.concat([owner, [drawn], tf.zeros([4], tf.int64)], 0)
            )
            new = tf.zeros([2, self.rows, self.size])
            rows = tf.case(
                [(is_owner, lambda: self._read(previous, offered)), (over, lambda: new)],
                default=lambda: self._zeroed(previous, offered),
            )
            noted = tf.tensor_scatter_nd_add(current, [[TURN]], tf.constant([1], tf.int64))
            with tf.control_dependencies([rows]):
                written = _assigned(header, tf.where(over, before, noted))
        with tf.control_dependencies([written]):
            released = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        with tf.control_dependencies([released]):
            rows = tf.ensure_shape(rows, [2, self.rows, self.size])
            current = tf.ensure_shape(current, [OFFERED_COUNT + 1])
        return Turn(
            current[SENDER],
            current[TURN] + 1,
            Remembered(rows[0], current[COUNT]),
            current[OFFERED],
            Remembered(rows[1], current[OFFERED_COUNT]),
        )

    def offer(self, owner: Any, turn: Turn, now: Remembered, then: Remembered) -> Any:
        """The op that writes the memory, and what it becomes if this turn's push is applied.

        It fails, and writes nothing, when another call has taken a turn since. It only writes
        nothing when the owner's generation is over, because no shard takes its push either.
        """
        previous, offered, header = _handles()
        lock = _locked([now.rows, now.count, then.rows, then.count, turn.sender, turn.number])
        with tf.control_dependencies([lock]):
            before = _read_header(header)
            name = tf.concat([owner, [turn.sender, turn.number]], 0)
            is_latest = tf.reduce_all(tf.equal(before[: TURN + 1], name))

            def note() -> Any:
                content = tf.concat([name, [turn.number, now.count, then.count]], 0)
                written = [
                    _assigned(previous, now.rows),
                    _assigned(offered, then.rows),
                    _assigned(header, content),
                ]
                with tf.control_dependencies(written):
                    return tf.constant(True)

            noted = tf.cond(is_latest, note, lambda: _is_over(before, owner))
        with tf.control_dependencies([noted]):
            released = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        with tf.control_dependencies([released]):
            return tf.debugging.Assert(noted, [OVERTAKEN, turn.number])

    def _read(self, previous: Any, offered: Any) -> Any:
        both = [
            tf.raw_ops.ReadVariableOp(resource=rows, dtype=tf.float32)
            for rows in (previous, offered)
        ]
        return tf.ensure_shape(tf.stack(both), [2, self.rows, self.size])

    def _zeroed(self, previous: Any, offered: Any) -> Any:
        zeros = tf.zeros([self.rows, self.size])
        with tf.control_dependencies([_assigned(previous, zeros), _assigned(offered, zeros)]):
            return tf.zeros([2, self.rows, self.size])


def _handles() -> list[Any]:
    """Return the handles of the rows kept, the rows offered, and the header."""
    return [
        tf.raw_ops.VarHandleOp(
            dtype=dtype, shape=tf.TensorShape(None), shared_name=f"{NAME}_{name}"
        )
        for name, dtype in (("kept", tf.float32), ("offered", tf.float32), ("header", tf.int64))
    ]


def _read_header(header: Any) -> Any:
    return tf.cond(
        tf.raw_ops.VarIsInitializedOp(resource=header),
        lambda: tf.ensure_shape(
            tf.raw_ops.ReadVariableOp(resource=header, dtype=tf.int64), [OFFERED_COUNT + 1]
        ),
        lambda: tf.constant([-1, 0, 0, 0, 0, 0, 0], tf.int64),
    )


def _is_over(header: Any, owner: Any) -> Any:
    """Whether the memory belongs to a later generation of this owner's run."""
    return tf.equal(header[OWNER], owner[0]) & (header[GENERATION] > owner[1])


def _assigned(handle: Any, value: Any) -> Any:
    return tf.raw_ops.AssignVariableOp(resource=handle, value=value, validate_shape=False)


def _locked(waits_for: list[Any]) -> Any:
    """The memory's lock, taken once all of `waits_for` is here.

    Nothing waits for the network while it is held.
    """
    with tf.control_dependencies(waits_for):
        return tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2(shared_name=f"{NAME}_lock"))


@dataclass(frozen=True)
class Begun:
    """A call with its turn, the owner of the memory (int64 [2]), and the settled memory."""

    owner: Any
    turn: Turn
    settled: Remembered

    @property
    def forgot(self) -> Any:
        """Whether the memory was empty, float64 0 or 1: the run's first call on this process."""
        return tf.cast(tf.equal(self.turn.number, 1), tf.float64)


class Sender:
    """Pushes to `shards` from workers that keep `own` rows of the caller's and the codec's rows."""

    def __init__(self, shards: ParameterShards, caller_row_count: int = 0) -> None:
        """Make the memory. Where workers keep something, the shards are `remembering` ones."""
        self.caller_row_count = caller_row_count
        self._shards = shards
        self._memory = WorkerMemory(
            caller_row_count + shards.wire.push.memory_rows, shards.layout.trained_size
        )

    def begin(self, owner: Any) -> Begun:
        """Take a turn and settle the memory. `owner`: see WorkerMemory."""
        memory = self._memory
        if not memory.rows:
            nothing = Remembered(tf.zeros([0, memory.size]), tf.constant(0, tf.int64))
            none = tf.constant(0, tf.int64)
            return Begun(owner, Turn(none, none, nothing, none, nothing), nothing)
        turn = memory.next_turn(owner)
        pushed = turn.offered_turn > 0
        slices = []
        settled = []
        for shard in self._shards.shards:
            applied_turn = shard.take_turn(turn.sender, turn.number, owner[1])
            applied = pushed & tf.equal(applied_turn, turn.offered_turn)
            trained_slice = slice(*shard.shard.trained)
            slices.append(
                tf.where(
                    applied,
                    turn.offered.rows[:, trained_slice],
                    turn.previous.rows[:, trained_slice],
                )
            )
            settled.append(applied)
        count = tf.where(tf.reduce_any(settled), turn.offered.count, turn.previous.count)
        return Begun(owner, turn, Remembered(tf.concat(slices, 1), count))

    def push(
        self,
        begun: Begun,
        values: Any,
        statistics: Any,
        header: Header,
        caller_rows: Any = None,
        steps: Any = 1,
    ) -> PushOutcome:
        """Send `values` [trained_size] and `statistics`; `caller_rows` replace the old if applied.

        The memory's count rises by `steps`. The push is of the owner's generation, whatever the
        header says. The call fails if a later one on this worker has begun.
        """
        header = replace(header, generation=begun.owner[1])
        if not self._memory.rows:
            return self._shards.push(values, statistics, header)
        settled = begun.settled
        encoded, codecs_rows = self._shards.encode(
            values, header, settled.rows[self.caller_row_count :]
        )
        if caller_rows is None:
            rows = codecs_rows
        else:
            rows = tf.concat([caller_rows, codecs_rows], 0)
        then = Remembered(rows, settled.count + tf.cast(steps, tf.int64))
        with tf.control_dependencies([self._memory.offer(begun.owner, begun.turn, settled, then)]):
            turn = tf.stack([begun.turn.sender, begun.turn.number])
        outcome = self._shards.push_encoded(encoded, statistics, header, turn)
        heard = tf.debugging.Assert(tf.not_equal(outcome.fresh, REFUSED), [OVERTAKEN])
        with tf.control_dependencies([heard]):
            return PushOutcome(tf.identity(outcome.fresh), tf.identity(outcome.staleness))
