"""What stays on a worker between calls: an inner optimizer's slots, a codec's residual.

It is found by name on the worker that a function runs on, so that one trace serves them all. It ends with the worker's
process, and starts at zero on a worker that has none of this run.

A call changes it in two steps, because the reply to a push can get lost. `offer` writes what the memory becomes if the
push is applied, beside what it is. The next call's `take` gets both, and asks the shards which of them holds
(`worker_node.sender`). Each call takes a turn, a number that only rises; a call that is not the last one to have
taken a turn can no longer offer anything.
"""

from dataclasses import dataclass
from typing import Any

import cluster.engine.environment  # noqa: F401  (before tensorflow)

import tensorflow as tf  # isort: skip

NAME = "pscluster_worker_memory"

OWNER, SENDER, TURN, OFFERED, COUNT, OFFERED_COUNT = range(6)
"""Places in the memory's header."""


@dataclass(frozen=True)
class Remembered:
    """`rows`, float32 (rows, size), and how many calls have gone into them, int64; zeros at first."""

    rows: Any
    count: Any


@dataclass(frozen=True)
class Turn:
    """One call's turn: int64 scalars but for the two memories.

    `sender` is a random number of this memory's own, `number` counts its calls from 1. `kept` is the memory before the
    push of turn `offered_turn`, `offered` after it; 0 if there was no push.
    """

    sender: Any
    number: Any
    kept: Remembered
    offered_turn: Any
    offered: Remembered


class WorkerMemory:
    """`rows` float32 vectors of `size`, one set a worker process: a new run's takes the place of the last one's."""

    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, size

    def take(self, owner: Any) -> Turn:
        """Take the next turn in what the worker remembers for `owner` (int64, one number a run), in a graph."""
        kept, offered, header = self._rows("kept"), self._rows("offered"), _header()
        lock = _locked([owner])
        with tf.control_dependencies([lock]):
            drawn = tf.raw_ops.RandomUniformInt(
                shape=tf.constant([], tf.int32), minval=tf.constant(1, tf.int64), maxval=tf.constant(1 << 62, tf.int64),
                seed=0, seed2=0,
            )  # fmt: skip
            before = _read_header(header)
            ours = tf.equal(before[OWNER], owner)
            known = tf.where(ours, before, tf.stack([owner, drawn, *[tf.constant(0, tf.int64)] * 4]))
            rows = tf.cond(ours, lambda: self._read(kept, offered), lambda: self._zeroed(kept, offered))
            turn = known[TURN] + 1
            with tf.control_dependencies([rows]):
                taken = _assigned(header, tf.tensor_scatter_nd_update(known, [[TURN]], [turn]))
        with tf.control_dependencies([taken]):
            released = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        with tf.control_dependencies([released]):
            rows = tf.ensure_shape(rows, [2, self.rows, self.size])
            known = tf.ensure_shape(known, [OFFERED_COUNT + 1])
        return Turn(
            known[SENDER],
            known[TURN] + 1,
            Remembered(rows[0], known[COUNT]),
            known[OFFERED],
            Remembered(rows[1], known[OFFERED_COUNT]),
        )

    def offer(self, owner: Any, turn: Turn, now: Remembered, then: Remembered) -> Any:
        """The op that notes what the memory is, and what it becomes if this turn's push is applied.

        It fails, and notes nothing, when another call has taken a turn since.
        """
        kept, offered, header = self._rows("kept"), self._rows("offered"), _header()
        lock = _locked([now.rows, now.count, then.rows, then.count, turn.sender, turn.number])
        with tf.control_dependencies([lock]):
            mine = tf.reduce_all(
                tf.equal(_read_header(header)[: TURN + 1], tf.stack([owner, turn.sender, turn.number]))
            )

            def note() -> Any:
                content = tf.stack([owner, turn.sender, turn.number, turn.number, now.count, then.count])
                written = [_assigned(kept, now.rows), _assigned(offered, then.rows), _assigned(header, content)]
                with tf.control_dependencies(written):
                    return tf.constant(True)

            noted = tf.cond(mine, note, lambda: tf.constant(False))
        with tf.control_dependencies([noted]):
            released = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        with tf.control_dependencies([released]):
            return tf.debugging.Assert(noted, ["another call has taken a turn on this worker", turn.number])

    def _rows(self, name: str) -> Any:
        return _handle(tf.float32, name)

    def _read(self, kept: Any, offered: Any) -> Any:
        both = [tf.raw_ops.ReadVariableOp(resource=rows, dtype=tf.float32) for rows in (kept, offered)]
        return tf.ensure_shape(tf.stack(both), [2, self.rows, self.size])

    def _zeroed(self, kept: Any, offered: Any) -> Any:
        zeros = tf.zeros([self.rows, self.size])
        with tf.control_dependencies([_assigned(kept, zeros), _assigned(offered, zeros)]):
            return tf.zeros([2, self.rows, self.size])


def _handle(dtype: Any, name: str) -> Any:
    return tf.raw_ops.VarHandleOp(dtype=dtype, shape=tf.TensorShape(None), shared_name=f"{NAME}_{name}")


def _header() -> Any:
    return _handle(tf.int64, "header")


def _read_header(header: Any) -> Any:
    return tf.cond(
        tf.raw_ops.VarIsInitializedOp(resource=header),
        lambda: tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=header, dtype=tf.int64), [OFFERED_COUNT + 1]),
        lambda: tf.constant([-1, 0, 0, 0, 0, 0], tf.int64),
    )


def _assigned(handle: Any, value: Any) -> Any:
    return tf.raw_ops.AssignVariableOp(resource=handle, value=value, validate_shape=False)


def _locked(waits_for: list[Any]) -> Any:
    """The memory's lock, taken once all of `waits_for` is here. Nothing under it waits for the network."""
    with tf.control_dependencies(waits_for):
        return tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2(shared_name=f"{NAME}_lock"))
