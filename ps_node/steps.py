"""Parameters under synchronous steps, and their arithmetic: the same bits on any number of workers and servers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cluster.consistency.policy import tree_sum
from cluster.engine.codecs.codec import Codec
from cluster.engine.codecs.fp32 import Fp32
from cluster.lazy import tf
from cluster.parameters import BLOCK, STATISTICS_RATE, Layout, Shard
from ps_node.optimizers.optimizer import Optimizer
from ps_node.shard import APPLIED, PlacedVector, ShardOnServer, VectorState, Wire


class Nodes:
    """Arithmetic of the reduction tree's nodes: [gradient | statistics], rounded at every sum as on the wire."""

    def __init__(self, codec: Codec, trained_size: int) -> None:
        """The first `trained_size` elements of a node are the gradient.

        Raises ValueError for a codec with a memory: the result would depend on which worker did what.
        """
        if not codec.stateless:
            raise ValueError(f"synchronous steps need a codec without memory, not {codec.name}")
        self._codec, self._size = codec, trained_size

    def leaf(self, gradient: Any, statistics: Any) -> Any:
        """A micro-batch's contribution: rounded as on the wire, without negative zeros.

        A missing part counts as +0.0, and x + 0.0 has the bits of x for every x but -0.0.
        """
        return tf.concat([self._rounded(gradient), statistics], 0) + 0.0

    def add(self, left: Any, right: Any) -> Any:
        """The sum of two nodes."""
        total = left + right
        if isinstance(self._codec, Fp32):
            return total
        return tf.concat([self._rounded(total[: self._size]), total[self._size :]], 0) + 0.0

    def _rounded(self, gradient: Any) -> Any:
        return self._codec.decode(self._codec.encode(gradient, tf.zeros([0, self._size]))[0], self._size)


def sent(node: Any, shard: ShardOnServer, layout: Layout) -> Any:
    """A shard's part of a node of the whole vector as it travels."""
    begin, end = shard.shard.statistics
    gradient, nothing = node[slice(*shard.shard.trained)], tf.zeros([0, shard.trained_size])
    statistics = node[layout.trained_size + begin : layout.trained_size + end]
    return tf.concat([shard.wire.push.encode(gradient, nothing)[0], statistics], 0)


def arrived(part: Any, shard: ShardOnServer) -> Any:
    """A shard's node of what `sent` sends."""
    words = shard.wire.push.words(shard.trained_size)
    return tf.concat([shard.wire.push.decode(part[:words], shard.trained_size), part[words:]], 0)


def step_applied(shard: ShardOnServer, total: Any, scale: Any, share: Any, rate: Any, statistics_rate: float) -> Any:
    """The op that applies a shard's part of a step's sum, its gradient times `scale`, its statistics times `share`.

    A `scale` of 0 means that the total is not usable.
    """
    usable = scale > 0.0
    scaled = total[: shard.trained_size] * scale
    gradient = either(usable, scaled, tf.zeros_like(scaled))
    kept = shard.statistics.read_value() if shard.statistics is not None else tf.zeros([0])
    statistics = either(usable, total[shard.trained_size :] * share, kept)
    with tf.control_dependencies(shard.applied(gradient, rate, statistics, statistics_rate)):
        return shard.count(1, 0)


def either(condition: Any, value: Any, other: Any) -> Any:
    """`value` or `other`, of the same shape, as the scalar `condition` says.

    `tf.where` broadcasts the condition one element at a time: ten times the time of this copy (measured).
    """
    return tf.raw_ops.Select(condition=condition, x=value, y=other)


def clipped(squares: Any, share: Any, clip_norm: float | None) -> tuple[Any, Any]:
    """The norm of a total times `share`, and the factor of the total: 0 if it is not finite.

    `squares` is the total's sum of squares by block, over all shards in layout order.
    """
    norm = tf.sqrt(tf.reduce_sum(squares)) * share
    scale = share if clip_norm is None else share * (clip_norm / tf.maximum(norm, clip_norm))
    return norm, tf.where(tf.math.is_finite(norm), scale, 0.0)


def block_squares(gradient: Any, size: int) -> Any:
    """Sums of squares of the blocks of 1,024 elements of a vector of `size`, float32 [blocks]."""
    padded = tf.pad(gradient, [[0, -size % BLOCK]])
    return tf.reduce_sum(tf.square(tf.reshape(padded, [-1, BLOCK])), 1)


def block_norm(vector: Any, size: int) -> Any:
    """Euclidean norm of a vector of `size` elements, summed in blocks of 1,024 in layout order.

    The order of the additions depends on nothing but the layout, so that the norm has the same bits on any number of
    workers and shards.
    """
    return tf.sqrt(tf.reduce_sum(block_squares(vector, size)))


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
        slots: int,
    ) -> None:  # fmt: skip
        super().__init__(shard, layout, state, optimizer, place, wire)
        self._nodes, self._size = Nodes(wire.push, self.trained_size), self.trained_size + self.statistics_size
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
            words = self.wire.push.words(self.trained_size) + self.statistics_size
            part, header = tf.split(update, [words, CONTRIBUTION_HEADER])
            row = arrived(part, self)
            lock = self.locked([row, header])
            with tf.control_dependencies([lock]):
                step, first = tf.bitcast(header[:2], tf.int64), tf.bitcast(header[2], tf.int32)
                expected = tf.equal(step, self.counts.read_value()[APPLIED]) & (self.closed.read_value() < step)
                fresh = expected & tf.not_equal(self.received.read_value()[first], step)

            def keep() -> Any:
                def write(kept: Any) -> Any:
                    with tf.control_dependencies([kept.assign(row, read_value=False)]):
                        return tf.constant(1, tf.int64)

                written = tf.switch_case(first, [partial(write, kept) for kept in self.rows])
                with tf.control_dependencies([written]):
                    mark = tf.raw_ops.ResourceScatterUpdate(resource=self.received.handle, indices=first, updates=step)
                with tf.control_dependencies([mark]):
                    return tf.identity(written)

            return self.released(lock, tf.cond(fresh, keep, self.dropped))

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
                rows = [either(present[place], row.read_value(), zeros) for place, row in enumerate(self.rows)]
                with tf.control_dependencies([self.total.assign(tree_sum(rows, self._nodes.add), read_value=False)]):
                    closed = self.closed.assign(step, read_value=False)
                with tf.control_dependencies([closed]):
                    return tf.constant(1)

            added = tf.cond(due, add_up, lambda: tf.constant(0))
            with tf.control_dependencies([added]):
                gradient = self.total.read_value()[: self.trained_size]
                squares = block_squares(gradient, self.trained_size)
            return self.released(lock, squares)

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
                applied = step_applied(self, self.total.read_value(), scale, share, rate, statistics_rate)
                with tf.control_dependencies([applied]):
                    return tf.constant(1)

            done = tf.cond(due, apply, lambda: tf.constant(0))
            with tf.control_dependencies([done]):
                pulled = self.read()
            return self.released(lock, pulled)


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
        *, slots: int, clip_norm: float | None, statistics_rate: float = STATISTICS_RATE,
    ) -> None:  # fmt: skip
        """Place `state` on one device for each of `places`; a step has `slots` micro-batches.

        Raises ValueError for a codec with a memory.
        """
        wire = wire or Wire()
        self.nodes = Nodes(wire.push, layout.trained_size)
        self.slots, self._clip_norm, self._statistics_rate = slots, clip_norm, statistics_rate
        super().__init__(layout, state, optimizer, places, wire, partial(StepShard, slots=slots))

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
        updates = [tf.concat([sent(node, shard, self.layout), header], 0) for shard in self.shards]
        fresh = [tf.identity(shard.contribute(update)) for shard, update in zip(self.shards, updates, strict=True)]
        return tf.add_n(fresh)
