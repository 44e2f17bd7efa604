"""One shard under synchronous steps: it collects partial sums, adds them up in a fixed tree, applies them once.

A step goes through three calls, each of which any worker may make, late and more than once:

    contribute   a partial sum over an aligned subtree of the step's micro-batches is kept in a row of its own
    close        the first call adds the rows up; every call answers with the total's squares, summed by block
    advance      the first call applies the total, cut to the clip norm; every call answers with the parameters

Which step a shard waits for is the number of those it has applied. What belongs to any other step is dropped.
"""

from collections.abc import Callable
from typing import Any

from cluster.consistency.tree import tree_sum
from cluster.engine.reduction import Nodes, block_squares
from cluster.parameters import Layout, Shard
from ps_node.optimizers.optimizer import Optimizer
from ps_node.shard import APPLIED, ShardOnServer, VectorState, Wire

import tensorflow as tf  # isort: skip

CONTRIBUTION_HEADER = 3
"""Elements at the end of a contribution: the step's halves, and the first micro-batch (an int32's bits)."""

NONE_YET = -1


class StepShard(ShardOnServer):
    """A shard that waits for whole steps of `slots` micro-batches."""

    def __init__(
        self, shard: Shard, layout: Layout, state: VectorState, optimizer: Optimizer, place: str, wire: Wire,
        slots: int, nodes: Nodes,
    ) -> None:  # fmt: skip
        """`nodes`: how everybody adds."""
        super().__init__(shard, layout, state, optimizer, place, wire)
        self._nodes, self._size = nodes, self.trained_size + self.statistics_size
        with tf.device(place):
            # Of known shape: a handle of one that is not ends the worker that gets it (a failed check in TF 2.21).
            self.rows = [tf.Variable(tf.zeros([self._size])) for _ in range(slots)]
            self.total = tf.Variable(tf.zeros([self._size]))
            self.received = tf.Variable(tf.fill([slots], tf.constant(NONE_YET, tf.int64)))
            self.closed = tf.Variable(tf.constant(NONE_YET, tf.int64))

    def contribute(self, update: Any) -> Any:
        """Keep a partial sum: encoded gradient, statistics, header. Returns int64 1, or 0 if it was dropped."""
        with tf.device(self.device):
            # Taken apart before the branches, or their switches would be placed on the worker (see LedgerShard.push).
            words = self.wire.push.words(self.trained_size)
            encoded, statistics, header = tf.split(update, [words, self.statistics_size, CONTRIBUTION_HEADER])
            row = tf.concat([self.wire.push.decode(encoded, self.trained_size), statistics], 0)
            lock = self.locked([row, header])
            with tf.control_dependencies([lock]):
                step, first = tf.bitcast(header[:2], tf.int64), tf.bitcast(header[2], tf.int32)
                expected = tf.equal(step, self.counts.read_value()[APPLIED]) & (self.closed.read_value() < step)
                fresh = expected & tf.not_equal(self.received.read_value()[first], step)

            def keep() -> Any:
                def into(place: int) -> Callable[[], Any]:
                    def write() -> Any:
                        with tf.control_dependencies([self.rows[place].assign(row, read_value=False)]):
                            return tf.constant(1, tf.int64)

                    return write

                written = tf.switch_case(first, [into(place) for place in range(len(self.rows))])
                with tf.control_dependencies([written]):
                    mark = tf.raw_ops.ResourceScatterUpdate(resource=self.received.handle, indices=first, updates=step)
                with tf.control_dependencies([mark]):
                    return tf.identity(written)

            return self._released(lock, tf.cond(fresh, keep, self.dropped))

    def close(self, request: Any) -> Any:
        """Squares of the step's total gradient, summed by block: float32 [blocks].

        `request`: the step's halves, then for each micro-batch 1.0 if it counts.
        """
        with tf.device(self.device):
            lock = self.locked([request])
            with tf.control_dependencies([lock]):
                step = tf.bitcast(request[:2], tf.int64)
                present = tf.equal(self.received.read_value(), step) & (request[2:] > 0.0)
                due = tf.equal(step, self.counts.read_value()[APPLIED]) & (self.closed.read_value() < step)

            def add_up() -> Any:
                zeros = tf.zeros([self._size])
                rows = [tf.where(present[place], row.read_value(), zeros) for place, row in enumerate(self.rows)]
                with tf.control_dependencies([self.total.assign(tree_sum(rows, self._add), read_value=False)]):
                    closed = self.closed.assign(step, read_value=False)
                with tf.control_dependencies([closed]):
                    return tf.constant(1)

            added = tf.cond(due, add_up, lambda: tf.constant(0))
            with tf.control_dependencies([added]):
                gradient = self.total.read_value()[: self.trained_size]
                squares = block_squares(gradient, self.trained_size)
            return self._released(lock, squares)

    def advance(self, request: Any, statistics_rate: float) -> Any:
        """Apply the closed step if that has not been done; what `read` answers then.

        `request`: the step's halves, what the total is multiplied with (0: nothing in it may be used), what its
        statistics are multiplied with, the learning rate.
        """
        with tf.device(self.device):
            lock = self.locked([request])
            with tf.control_dependencies([lock]):
                step, scale, share, rate = tf.bitcast(request[:2], tf.int64), request[2], request[3], request[4]
                due = tf.equal(step, self.counts.read_value()[APPLIED]) & tf.equal(self.closed.read_value(), step)

            def apply() -> Any:
                total = self.total.read_value()
                usable = scale > 0.0
                gradient = tf.where(usable, total[: self.trained_size] * scale, 0.0)
                kept = self.statistics.read_value() if self.statistics is not None else tf.zeros([0])
                statistics = tf.where(usable, total[self.trained_size :] * share, kept)
                with tf.control_dependencies(self.applied(gradient, rate, statistics, statistics_rate)):
                    counted = self.count(1, 0)
                with tf.control_dependencies([counted]):
                    return tf.constant(1)

            done = tf.cond(due, apply, lambda: tf.constant(0))
            with tf.control_dependencies([done]):
                pulled = self.read()
            return self._released(lock, pulled)

    def _add(self, left: Any, right: Any) -> Any:
        return self._nodes.add(left, right, self.trained_size)

    def _released(self, lock: Any, answer: Any) -> Any:
        with tf.control_dependencies([answer]):
            release = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        with tf.control_dependencies([release]):
            return tf.identity(answer)
