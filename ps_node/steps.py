"""A shard under synchronous steps, which collects the parts of each.

It is the same bits on any number of workers and servers.
"""

from typing import Any

from core.ground.lazy import tf
from core.parameters import Layout, Shard
from ps_node.nodes import Nodes, Penalty, StepRecipe, arrived, sent, step_applied
from ps_node.optimizers import Optimizer
from ps_node.shard import APPLIED, ShardOnServer, VectorState, Wire

STEP_WORDS = 4
"""Elements at the beginning of each request of a step: the halves of the step and of the
generation."""

KEPT, WHOLE = 1, 2
"""Answers to a contribution."""

NONE_YET = -1

NO_STEP = -2
"""A step that no shard waits for: a request for it changes nothing."""

LOGGED_STEPS = 64
"""Steps whose figures the first shard keeps: more than the steps of a call, which asks for them at
its end."""


def step_words(step: Any, generation: Any) -> Any:
    """The float32 elements that name a step in a request; both are int64."""
    return tf.reshape(
        tf.bitcast(tf.stack([step, tf.cast(generation, tf.int64)]), tf.float32), [STEP_WORDS]
    )


class StepShard(ShardOnServer):
    """A shard that collects a step of `slots` slots.

    It adds them up in a fixed tree and applies the sum once.

    A step goes through three calls, each of which any worker may make, late and more than once:

        contribute   keep partial sums over aligned subtrees of the step's slots, in a row each
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
            """The step of the last row by its first slot; of the last one that covers a slot:"""
            self.covered = tf.Variable(tf.fill([slots], tf.constant(NONE_YET, tf.int64)))
            self._keeps_figures = recipe.logs and not shard.index
            if self._keeps_figures:
                self.figures = tf.Variable(tf.zeros([slots, 2], tf.float64))
                self.log = tf.Variable(tf.zeros([LOGGED_STEPS, 2], tf.float64))
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
        """Keep partial sums; `update` is what `contribution` makes of them.

        Returns int64 KEPT, WHOLE if all slots of the step are here now, or 0 if all were dropped:
        those whose slots are all here, however they were cut.
        """
        with tf.device(self.device):
            # Split before the branches, or TensorFlow would place their switches on the worker (see
            # LedgerShard.push).
            part_words = self.wire.push.words(self.trained_size) + self.statistics_size
            sizes = tf.bitcast(update[STEP_WORDS : STEP_WORDS + 2], tf.int32)
            nodes, count = tf.unstack(sizes, num=2)
            figure_words = 2 * count if self._keeps_figures else 0
            lengths = [STEP_WORDS, 2, nodes, nodes * part_words, figure_words]
            header, _, firsts, sums, figures = tf.split(update, lengths, num=len(lengths))
            firsts = tf.bitcast(firsts, tf.int32)
            slots = firsts[0] + tf.range(count)
            if self._nodes.exact:
                rows = tf.reshape(sums, [-1, part_words])
            else:
                rows = arrived(tf.ensure_shape(sums, [part_words]), self)[None]
            lock = self.locked([header, slots, rows, figures])
            with tf.control_dependencies([lock]):
                step, awaited = self._step_of(header)
                expected = awaited & (self.closed.read_value() < step)
                missing = tf.not_equal(tf.gather(self.covered.read_value(), slots), step)
                # Subtrees of one tree: a node's slots are all here, or what is here of them is in
                # smaller nodes, whose place it takes.
                node_of_slot = tf.searchsorted(firsts, slots, side="right") - 1
                is_new = tf.math.unsorted_segment_max(
                    tf.cast(missing, tf.int32), node_of_slot, nodes
                )
                fresh = expected & tf.reduce_any(missing)

            def keep() -> Any:
                new_nodes = tf.where(is_new > 0)[:, 0]
                new_firsts = tf.gather(firsts, new_nodes)
                new_slots = tf.gather(slots, tf.where(tf.gather(is_new, node_of_slot) > 0)[:, 0])
                written = tf.raw_ops.LookupTableInsertV2(
                    table_handle=self.rows, keys=new_firsts, values=tf.gather(rows, new_nodes)
                )
                emptied = marked(self.received, new_slots, tf.constant(NONE_YET, tf.int64))
                with tf.control_dependencies([emptied]):
                    writes = [written, marked(self.received, new_firsts, step)]
                if self._keeps_figures:
                    writes.append(
                        tf.raw_ops.ResourceScatterUpdate(
                            resource=self.figures.handle,
                            indices=slots,
                            updates=tf.cast(tf.reshape(figures, [-1, 2]), tf.float64),
                        )
                    )
                with tf.control_dependencies(writes):
                    covered = marked(self.covered, new_slots, step)
                with tf.control_dependencies([covered]):
                    is_whole = tf.reduce_all(tf.equal(self.covered.read_value(), step))
                    return tf.where(is_whole, tf.constant(WHOLE, tf.int64), KEPT)

            return self.released(lock, tf.cond(fresh, keep, self.dropped))

    def contribution(self, layout: Layout, nodes: Any, firsts: Any, step: Any, figures: Any) -> Any:
        """Return the sums over neighbouring subtrees as they travel to this shard.

        It is part of a worker's graph. `nodes` are rows, one where the wire rounds; `firsts`,
        int32, the first slot of each; `step` what `step_words` makes; `figures`, float32 (slots,
        2), loss and right answers of each of their slots.
        """
        if self._nodes.exact:
            begin, end = (layout.trained_size + place for place in self.shard.statistics)
            pieces = [nodes[:, slice(*self.shard.trained)], nodes[:, begin:end]]
            sums = tf.reshape(tf.concat(pieces, 1), [-1])
        else:
            sums = sent(nodes[0], self, layout)
        sizes = tf.stack([tf.shape(firsts)[0], tf.shape(figures)[0]])
        # Together: Grappler takes the bits of a small number for 0.0 where they are a constant.
        numbers = tf.concat([sizes, firsts], 0)
        pieces = [step, tf.bitcast(numbers, tf.float32), sums]
        if self._keeps_figures:
            pieces.append(tf.reshape(figures, [-1]))
        return tf.concat(pieces, 0)

    def _step_of(self, request: Any) -> tuple[Any, Any]:
        """The step that a request is of, and whether the shard waits for it.

        Call it under the lock.
        """
        step, generation = (tf.bitcast(request[begin : begin + 2], tf.int64) for begin in (0, 2))
        return step, tf.equal(step, self.counts.read_value()[APPLIED]) & self.is_current(generation)

    def close(self, request: Any) -> Any:
        """Squares of the step's total gradient, summed by block, and 1.0 if it is all here.

        They are float32 [blocks + 1]. `request`: the halves of step and generation, the share that
        turns the total into a mean over the batch, then for each slot 1.0 if it counts.
        """
        with tf.device(self.device):
            request = tf.identity(
                request
            )  # or the lock would wait for the worker in a message more
            lock = self.locked([request])
            with tf.control_dependencies([lock]):
                step, awaited = self._step_of(request)
                share = request[STEP_WORDS]
                counts = request[STEP_WORDS + 1 :] > 0.0
                present = tf.equal(self.received.read_value(), step) & counts
                covered = tf.reduce_all(tf.equal(self.covered.read_value(), step) | ~counts)
                due = awaited & covered & (self.closed.read_value() < step)

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
                with tf.control_dependencies([emptied, *self._logged(step)]):
                    closed = self.closed.assign(step, read_value=False)
                with tf.control_dependencies([closed]):
                    return tf.constant(1)

            added = tf.cond(due, add_up, lambda: tf.constant(0))
            with tf.control_dependencies([added]):
                gradient = self.total.read_value()[: self.trained_size]
                squares = self._arithmetic.block_squares(gradient, self.trained_size)
                applied = self.counts.read_value()[APPLIED]
                is_closed = (applied > step) | tf.equal(self.closed.read_value(), step)
                answer = tf.concat([squares, [tf.cast(is_closed, tf.float32)]], 0)
            return self.released(lock, answer)

    def _logged(self, step: Any) -> list[Any]:
        """Return the op that writes a step's figures, where this shard keeps them."""
        if not self._keeps_figures:
            return []
        losses, hits = tf.unstack(self.figures.read_value(), axis=1)
        return [
            tf.raw_ops.ResourceScatterUpdate(
                resource=self.log.handle,
                indices=step % LOGGED_STEPS,
                updates=tf.stack([summed_in_tree(losses), tf.reduce_sum(hits)]),
            )
        ]

    def is_whole(self, request: Any) -> Any:
        """Whether all slots of the step, or a later one, are here. `request`: its words."""
        with tf.device(self.device):
            request = tf.identity(request)
            step, awaited = self._step_of(request)
            whole = tf.reduce_all(tf.equal(self.covered.read_value(), step))
            applied = self.counts.read_value()[APPLIED]
            return (awaited & whole) | (applied > step)

    def logged(self, steps: Any) -> Any:
        """The last step that is closed, int64; loss and right answers of these, float64 [steps, 2].

        They count for steps up to that one. Both are float32, as they travel.
        """
        with tf.device(self.device):
            steps = tf.identity(steps)
            closed = self.closed.read_value()
            with tf.control_dependencies([closed]):
                figures = tf.gather(self.log.read_value(), steps % LOGGED_STEPS)
            halves = tf.reshape(tf.bitcast(figures, tf.float32), [-1])
            return tf.concat([tf.bitcast(closed, tf.float32), halves], 0)

    def advance(self, request: Any) -> Any:
        """Apply the closed step unless it is applied; returns what `read` answers then.

        `request`: the halves of step and generation, the factor of the total (0: the total is not
        usable), the factor of its statistics, the learning rate.
        """
        with tf.device(self.device):
            request = tf.identity(
                request
            )  # or the lock would wait for the worker in a message more
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


def marked(steps: Any, places: Any, step: Any) -> Any:
    """The op that writes a step's number at some places of a variable."""
    return tf.raw_ops.ResourceScatterUpdate(
        resource=steps.handle, indices=places, updates=tf.fill(tf.shape(places), step)
    )


def summed_in_tree(values: Any) -> Any:
    """Add up a vector in the fixed tree, as `core.consistency.tree_sum` does."""
    count = values.shape[0]
    while count > 1:
        even = values[: count // 2 * 2]
        values = tf.concat([even[::2] + even[1::2], values[count // 2 * 2 :]], 0)
        count = values.shape[0]
    return values[0]
