"""What stays on a worker between calls: an inner optimizer's slots, a codec's residual.

It is found by name on whatever worker a function runs on, so that one trace serves them all. It is gone with the
worker's process, and starts at zero on a worker that has none of this run: whoever uses it must bear that.
"""

from dataclasses import dataclass
from typing import Any

import cluster.engine.environment  # noqa: F401  (before tensorflow)

import tensorflow as tf  # isort: skip

NAME = "pscluster_worker_memory"


@dataclass(frozen=True)
class Remembered:
    """`rows`, float32 (rows, size), and how many calls have gone into them, int64; zeros at first."""

    rows: Any
    count: Any


class WorkerMemory:
    """`rows` float32 vectors of `size`, one set a worker process: a new run's takes the place of the last one's."""

    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, size

    def _handles(self) -> tuple[Any, Any]:
        return (
            tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=tf.TensorShape(None), shared_name=f"{NAME}_rows"),
            tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=tf.TensorShape(None), shared_name=f"{NAME}_owner"),
        )

    def load(self, owner: Any) -> Remembered:
        """What the worker remembers for `owner` (int64, one number a run), in a graph."""
        rows, owned = self._handles()
        nobody = tf.constant([-1, 0], tf.int64)
        known = tf.cond(
            tf.raw_ops.VarIsInitializedOp(resource=owned),
            lambda: tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=owned, dtype=tf.int64), [2]),
            lambda: nobody,
        )
        ours = tf.equal(known[0], owner)
        value = tf.cond(
            ours,
            lambda: tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=rows, dtype=tf.float32), [self.rows, self.size]),
            lambda: tf.zeros([self.rows, self.size]),
        )
        return Remembered(value, tf.where(ours, known[1], 0))

    def store(self, owner: Any, remembered: Remembered) -> list[Any]:
        """Ops that remember this until the next call."""
        rows, owned = self._handles()
        kept = tf.raw_ops.AssignVariableOp(resource=rows, value=remembered.rows, validate_shape=False)
        with tf.control_dependencies([kept]):
            mark = tf.raw_ops.AssignVariableOp(
                resource=owned, value=tf.stack([owner, remembered.count]), validate_shape=False
            )
        return [kept, mark]
