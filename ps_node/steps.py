"""Parameters under synchronous steps: the same bits on any number of workers and servers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.consistency.tree import tree_sum
from cluster.engine.lost import reaching_servers
from cluster.engine.reduction import Nodes, block_squares, clipped
from cluster.parameters import Layout, Shard
from ps_node.optimizers.optimizer import Optimizer
from ps_node.shard import APPLIED, PlacedVector, ShardOnServer, VectorState, Wire

import tensorflow as tf  # isort: skip


CONTRIBUTION_HEADER = 3
"""Elements at the end of a contribution: the step's halves, and the first micro-batch (an int32's bits)."""

NONE_YET = -1


class StepShard(ShardOnServer):
    """A shard that collects a step of `slots` micro-batches, adds it up in a fixed tree and applies it once.

    A step goes through three calls, each of which any worker may make, late and more than once:

        contribute   keep a partial sum over an aligned subtree of the step's micro-batches in a row of its own
        close        the first call adds up the rows; every call answers with the total's squares, summed by block
        advance      the first call applies the total, cut to the clip norm; every call answers with the parameters

    The number of applied steps says which step the shard waits for. It drops what belongs to any other step.
    """

    def __init__(
        self, shard: Shard, layout: Layout, state: VectorState, optimizer: Optimizer, place: str, wire: Wire,
        slots: int, nodes: Nodes,
    ) -> None:  # fmt: skip
        """`nodes`: the arithmetic of all sums."""
        super().__init__(shard, layout, state, optimizer, place, wire)
        self._nodes, self._size = nodes, self.trained_size + self.statistics_size
        with tf.device(place):
            # Of known shape: a handle of unknown shape crashes the worker that gets it (a failed check in TF 2.21).
            self.rows = [tf.Variable(tf.zeros([self._size])) for _ in range(slots)]
            self.total = tf.Variable(tf.zeros([self._size]))
            self.received = tf.Variable(tf.fill([slots], tf.constant(NONE_YET, tf.int64)))
            self.closed = tf.Variable(tf.constant(NONE_YET, tf.int64))

    def contribute(self, update: Any) -> Any:
        """Keep a partial sum: encoded gradient, statistics, header. Returns int64 1, or 0 if it was dropped."""
        with tf.device(self.device):
            # Split before the branches, or TensorFlow would place their switches on the worker (see LedgerShard.push).
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
        """Apply the closed step unless it is applied; returns what `read` answers then.

        `request`: the step's halves, the factor of the total (0: the total is not usable), the factor of its
        statistics, the learning rate.
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


@dataclass(frozen=True)
class Pulled:
    """The parameters of a step: trained [trained_size], statistics [statistics_size].

    `norm` is that of the gradient of the step before, ahead of clipping.
    """

    trained: Any
    statistics: Any
    norm: Any


class StepShards(PlacedVector[StepShard]):
    """The whole vector; each step updates it."""

    def __init__(
        self, layout: Layout, state: VectorState, optimizer: Optimizer, places: Sequence[str], wire: Wire | None = None,
        *, slots: int, clip_norm: float | None, statistics_rate: float = 0.1,
    ) -> None:  # fmt: skip
        """Place `state` on one device for each of `places`; a step has `slots` micro-batches.

        Raises ValueError for a codec with a memory.
        """
        wire = wire or Wire()
        self.nodes = Nodes(wire.push)
        self.slots, self._clip_norm, self._statistics_rate = slots, clip_norm, statistics_rate
        cuts = layout.shards(len(places))
        with reaching_servers():
            shards = [
                StepShard(shard, layout, state, optimizer, place, wire, slots, self.nodes)
                for shard, place in zip(cuts, places, strict=True)
            ]
        super().__init__(layout, shards, state.next_id)

    def leaf(self, gradient: Any, statistics: Any) -> Any:
        """See Nodes; of the whole vector."""
        return self.nodes.leaf(gradient, statistics, self.layout.trained_size)

    def add(self, left: Any, right: Any) -> Any:
        """See Nodes; of the whole vector."""
        return self.nodes.add(left, right, self.layout.trained_size)

    def advance(self, step: Any, counted: Any, share: Any, rate: Any) -> Pulled:
        """Finish step `step` unless another worker has, and pull.

        `counted`, float32 [slots], is 1 for each micro-batch that counts; `share` turns their sum into a mean over the
        batch (1 if all of them count); `rate` is the step's learning rate.
        """
        halves = tf.bitcast(step, tf.float32)
        request = tf.concat([halves, counted], 0)
        squares = tf.concat([tf.identity(shard.close(request)) for shard in self.shards], 0)
        norm, scale = clipped(squares, share, self._clip_norm)
        request = tf.concat([halves, tf.stack([scale, share, rate])], 0)
        pulled = [tf.identity(shard.advance(request, self._statistics_rate)) for shard in self.shards]
        trained, statistics, _ = self._joined(pulled)
        return Pulled(trained, statistics, norm)

    def contribute(self, node: Any, step: Any, first: Any) -> Any:
        """Send a subtree's sum [trained_size + statistics_size]; returns for how many shards it was new, int64."""
        header = tf.concat([tf.bitcast(step, tf.float32), [tf.bitcast(first, tf.float32)]], 0)
        fresh = []
        for shard in self.shards:
            begin, end = shard.shard.statistics
            encoded = self.nodes.encode(node[slice(*shard.shard.trained)], shard.trained_size)
            statistics = node[self.layout.trained_size + begin : self.layout.trained_size + end]
            fresh.append(tf.identity(shard.contribute(tf.concat([encoded, statistics, header], 0))))
        return tf.add_n(fresh)
