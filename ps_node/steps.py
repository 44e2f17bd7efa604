"""Parameters under synchronous steps: the same bits on any number of workers and servers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from core.engine.codecs import Codec
from core.engine.codecs.fp32 import Fp32
from core.ground.lazy import tf
from core.parameters import STATISTICS_RATE, Layout, Shard, Vector
from ps_node.arithmetic import Arithmetic, TensorFlowArithmetic, either
from ps_node.optimizers import Optimizer
from ps_node.shard import APPLIED, PlacedVector, ShardOnServer, VectorState, Wire


class Nodes:
    """Arithmetic of the reduction tree's nodes: [gradient | statistics].

    It rounds at every sum as on the wire.
    """

    def __init__(self, codec: Codec, trained_size: int, arithmetic: Arithmetic) -> None:
        """The first `trained_size` elements of a node are the gradient.

        Raises ValueError for a codec with a memory: the result would depend on which worker did
        what.
        """
        if not codec.stateless:
            raise ValueError(f"synchronous steps need a codec without memory, not {codec.name}")
        self._codec = codec
        self._size = trained_size
        self.arithmetic = arithmetic

    @property
    def exact(self) -> bool:
        """Whether the wire rounds nothing, so that a sum of sums needs none of its leaves."""
        return isinstance(self._codec, Fp32)

    def rounded(self, node: Any) -> Any:
        """A slot's contribution: rounded as on the wire, without negative zeros."""
        return self.arithmetic.rounded(node, self._size, self._codec)

    def total(self, nodes: Sequence[Any], present: Any = None, width: int | None = None) -> Any:
        """The sum of neighbouring nodes in the tree; those that are not `present` are zeros.

        Their shape says their `width`, where it is known.
        """
        width = width or nodes[0].shape[0]
        return self.arithmetic.total(nodes, present, width, self._size, self._codec)


@dataclass(frozen=True)
class Penalty:
    """The gradient of the loss's L2 term: `weight` times what decays of some parameters.

    It joins the gradient of a whole batch, once all slots are added up.
    """

    weight: float
    decayed: Vector

    @classmethod
    def for_elements(
        cls, weight: float, layout: Layout, trained: tuple[int, int] | None = None
    ) -> "Penalty":
        """Return that of elements [start, stop) of the trained vector, or of all."""
        return cls(weight, layout.decayed[slice(*(trained or (None,)))])

    def added(self, gradient: Any, parameters: Any, share: Any = 1.0) -> Any:
        """Return the gradient with the term's.

        `gradient` is still to be multiplied by `share`, which the term is not.
        """
        if not self.weight:
            return gradient
        return gradient + (self.weight / share) * (self.decayed * parameters)


def sent(node: Any, shard: ShardOnServer, layout: Layout) -> Any:
    """A shard's part of a node of the whole vector as it travels."""
    begin, end = shard.shard.statistics
    gradient = node[slice(*shard.shard.trained)]
    nothing = tf.zeros([0, shard.trained_size])
    statistics = node[layout.trained_size + begin : layout.trained_size + end]
    return tf.concat([shard.wire.push.encode(gradient, nothing)[0], statistics], 0)


def arrived(part: Any, shard: ShardOnServer) -> Any:
    """A shard's node of what `sent` sends."""
    encoded_words = shard.wire.push.words(shard.trained_size)
    return tf.concat(
        [shard.wire.push.decode(part[:encoded_words], shard.trained_size), part[encoded_words:]], 0
    )


def step_applied(shard: ShardOnServer, total: Any, scale: Any, share: Any, rate: Any) -> Any:
    """Return the op that applies a shard's part of a step's sum.

    The gradient is multiplied by `scale`, the statistics by `share`.

    A `scale` of 0 means that the total is not usable.
    """
    usable = scale > 0.0
    scaled = total[: shard.trained_size] * scale
    gradient = either(usable, scaled, tf.zeros_like(scaled))
    if shard.statistics is not None:
        previous = shard.statistics.read_value()
    else:
        previous = tf.zeros([0])
    statistics = either(usable, total[shard.trained_size :] * share, previous)
    with tf.control_dependencies(shard.applied(gradient, rate, statistics, STATISTICS_RATE)):
        return shard.count(1, 0)


def clipped(total_norm: Any, share: Any, clip_norm: float | None) -> tuple[Any, Any]:
    """The norm of a total times `share`, and the factor of the total: 0 if it is not finite."""
    norm = total_norm * share
    if clip_norm is None:
        scale = share
    else:
        scale = share * (clip_norm / tf.maximum(norm, clip_norm))
    return norm, tf.where(tf.math.is_finite(norm), scale, 0.0)


@dataclass(frozen=True)
class StepRecipe:
    """How a step is made: of how many slots, cut to which norm, with which weight of the L2 term.

    Without a `clip_norm` no gradient is cut.
    """

    slots: int
    clip_norm: float | None = None
    l2: float = 0.0
    arithmetic: Arithmetic = field(default_factory=TensorFlowArithmetic)


STEP_WORDS = 4
"""Elements at the beginning of each request of a step: the halves of the step and of the
generation."""

CONTRIBUTION_HEADER = STEP_WORDS + 1
"""Elements at the end of a contribution: those, and the first slot (an int32's bits)."""

NONE_YET = -1


def step_words(step: Any, generation: Any) -> Any:
    """The float32 elements that name a step in a request; both are int64."""
    return tf.reshape(
        tf.bitcast(tf.stack([step, tf.cast(generation, tf.int64)]), tf.float32), [STEP_WORDS]
    )


class StepShard(ShardOnServer):
    """A shard that collects a step of `slots` slots.

    It adds them up in a fixed tree and applies the sum once.

    A step goes through three calls, each of which any worker may make, late and more than once:

        contribute   keep a partial sum over an aligned subtree of the step's slots in a row
                     of its own
        close        the first call adds up the rows; every call answers with the total's squares,
                     summed by block
        advance      the first call applies the total, cut to the clip norm; every call answers with
                     the parameters

    The number of applied steps says which step the shard waits for. It drops what belongs to any
    other step, and what belongs to another generation.
    """

    def __init__(
        self,
        shard: Shard,
        layout: Layout,
        state: VectorState,
        optimizer: Optimizer,
        place: str,
        wire: Wire,
        recipe: StepRecipe,
    ) -> None:
        super().__init__(shard, layout, state, optimizer, place, wire)
        self._arithmetic = recipe.arithmetic
        self._nodes = Nodes(wire.push, self.trained_size, recipe.arithmetic)
        self._penalty = Penalty.for_elements(recipe.l2, layout, shard.trained)
        self._size = self.trained_size + self.statistics_size
        slots = recipe.slots
        with tf.device(place):
            # One table, and not a variable for each slot: every worker sets up each function with
            # all that it reaches, which 32 variables made four times as dear (measured). It has
            # rows of memory only for nodes that came.
            self.rows = tf.raw_ops.AnonymousMutableHashTableOfTensors(
                key_dtype=tf.int32, value_dtype=tf.float32, value_shape=[self._size]
            )
            self.total = tf.Variable(tf.zeros([self._size]))
            self.received = tf.Variable(tf.fill([slots], tf.constant(NONE_YET, tf.int64)))
            self.closed = tf.Variable(tf.constant(NONE_YET, tf.int64))

    def _leaves(self, present: Any) -> list[Any]:
        """The row of each slot; one that is not `present` is empty, or zeros where it has to be."""
        slots = present.shape[0]
        if self._arithmetic.keeps_rows(self.wire.push):
            keys = tf.range(slots)
            sizes = [self._size] * slots
        else:
            keys = tf.cast(tf.reshape(tf.where(present), [-1]), tf.int32)
            sizes = tf.cast(present, tf.int32) * self._size
        rows = tf.raw_ops.LookupTableFindV2(
            table_handle=self.rows, keys=keys, default_value=tf.zeros([self._size])
        )
        leaves: list[Any] = tf.split(tf.reshape(rows, [-1]), sizes, num=slots)
        return leaves

    def contribute(self, update: Any) -> Any:
        """Keep a partial sum: encoded gradient, statistics, header.

        Returns int64 1, or 0 if it was dropped.
        """
        with tf.device(self.device):
            # Split before the branches, or TensorFlow would place their switches on the worker (see
            # LedgerShard.push).
            part_words = self.wire.push.words(self.trained_size) + self.statistics_size
            part, header = tf.split(update, [part_words, CONTRIBUTION_HEADER])
            row = arrived(part, self)
            lock = self.locked([row, header])
            with tf.control_dependencies([lock]):
                step, awaited = self._step_of(header)
                first = tf.bitcast(header[STEP_WORDS], tf.int32)
                expected = awaited & (self.closed.read_value() < step)
                fresh = expected & tf.not_equal(self.received.read_value()[first], step)

            def keep() -> Any:
                written = tf.raw_ops.LookupTableInsertV2(
                    table_handle=self.rows, keys=[first], values=[row]
                )
                with tf.control_dependencies([written]):
                    mark = tf.raw_ops.ResourceScatterUpdate(
                        resource=self.received.handle, indices=first, updates=step
                    )
                with tf.control_dependencies([mark]):
                    return tf.constant(1, tf.int64)

            return self.released(lock, tf.cond(fresh, keep, self.dropped))

    def _step_of(self, request: Any) -> tuple[Any, Any]:
        """The step that a request is of, and whether the shard waits for it.

        Call it under the lock.
        """
        step, generation = (tf.bitcast(request[begin : begin + 2], tf.int64) for begin in (0, 2))
        return step, tf.equal(step, self.counts.read_value()[APPLIED]) & self.is_current(generation)

    def close(self, request: Any) -> Any:
        """Squares of the step's total gradient, summed by block: float32 [blocks].

        `request`: the halves of step and generation, the share that turns the total into a mean
        over the batch, then for each slot 1.0 if it counts.
        """
        with tf.device(self.device):
            lock = self.locked([request])
            with tf.control_dependencies([lock]):
                step, awaited = self._step_of(request)
                share = request[STEP_WORDS]
                counts = request[STEP_WORDS + 1 :] > 0.0
                present = tf.equal(self.received.read_value(), step) & counts
                due = awaited & (self.closed.read_value() < step)

            def add_up() -> Any:
                total = self._nodes.total(self._leaves(present), present, self._size)
                gradient = self._penalty.added(
                    total[: self.trained_size], self.parameters.read_value(), share
                )
                total = tf.concat([gradient, total[self.trained_size :]], 0)
                with tf.control_dependencies([self.total.assign(total, read_value=False)]):
                    emptied = tf.raw_ops.LookupTableRemoveV2(
                        table_handle=self.rows, keys=tf.range(present.shape[0])
                    )
                with tf.control_dependencies([emptied]):
                    closed = self.closed.assign(step, read_value=False)
                with tf.control_dependencies([closed]):
                    return tf.constant(1)

            added = tf.cond(due, add_up, lambda: tf.constant(0))
            with tf.control_dependencies([added]):
                gradient = self.total.read_value()[: self.trained_size]
                squares = self._arithmetic.block_squares(gradient, self.trained_size)
            return self.released(lock, squares)

    def advance(self, request: Any) -> Any:
        """Apply the closed step unless it is applied; returns what `read` answers then.

        `request`: the halves of step and generation, the factor of the total (0: the total is not
        usable), the factor of its statistics, the learning rate.
        """
        with tf.device(self.device):
            lock = self.locked([request])
            with tf.control_dependencies([lock]):
                step, awaited = self._step_of(request)
                scale, share, rate = tf.unstack(request[STEP_WORDS:], num=3)
                due = awaited & tf.equal(self.closed.read_value(), step)

            def apply() -> Any:
                applied = step_applied(self, self.total.read_value(), scale, share, rate)
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
        self,
        layout: Layout,
        state: VectorState,
        optimizer: Optimizer,
        places: Sequence[str],
        wire: Wire | None = None,
        *,
        recipe: StepRecipe,
    ) -> None:
        """Place `state` on one device for each of `places`.

        Raises ValueError for a codec with a memory.
        """
        wire = wire or Wire()
        self.nodes = Nodes(wire.push, layout.trained_size, recipe.arithmetic)
        self._recipe = recipe
        super().__init__(layout, state, optimizer, places, wire, partial(StepShard, recipe=recipe))
        # The workers' functions, one for each size of a part, call these. Traced once for all, 32
        # slots take 0.8 s instead of 3.6 s (measured).
        self._advance = tf.function(self._advanced, autograph=False)
        self._contribute = tf.function(self._contributed, autograph=False)

    def advance(
        self, step: Any, counted: Any, share: Any, rate: Any, generation: Any = 0
    ) -> Pulled:
        """Finish step `step` of `generation` unless another worker has, and pull.

        `counted`, float32 [slots], is 1 for each slot that counts; `share` turns their sum
        into a mean over the batch (1 if all of them count); `rate` is the step's learning rate.
        """
        return Pulled(*self._advance(step, counted, share, rate, generation))

    def _advanced(
        self, step: Any, counted: Any, share: Any, rate: Any, generation: Any
    ) -> tuple[Any, Any, Any]:
        halves = step_words(step, generation)
        request = tf.concat([halves, [share], counted], 0)
        squares = tf.concat([tf.identity(shard.close(request)) for shard in self.shards], 0)
        total_norm = self._recipe.arithmetic.norm(squares)
        norm, scale = clipped(total_norm, share, self._recipe.clip_norm)
        request = tf.concat([halves, tf.stack([scale, share, rate])], 0)
        pulled = [tf.identity(shard.advance(request)) for shard in self.shards]
        trained, statistics, _ = self._joined(pulled)
        return trained, statistics, norm

    def contribute(self, node: Any, step: Any, first: Any, generation: Any = 0) -> Any:
        """Send a subtree's sum; return for how many shards it was new, int64.

        The sum is [trained_size + statistics_size].
        """
        return self._contribute(node, step, first, generation)

    def _contributed(self, node: Any, step: Any, first: Any, generation: Any) -> Any:
        header = tf.concat([step_words(step, generation), [tf.bitcast(first, tf.float32)]], 0)
        updates = [tf.concat([sent(node, shard, self.layout), header], 0) for shard in self.shards]
        fresh = [
            tf.identity(shard.contribute(update))
            for shard, update in zip(self.shards, updates, strict=True)
        ]
        return tf.add_n(fresh)
