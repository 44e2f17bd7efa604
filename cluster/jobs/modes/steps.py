"""The modes of whole steps, always with the same bits: `sync`, `single`, `allreduce`, `mirrored`.

`sync` and `single`: step after step, computed in parts. A part pulls (which finishes the step
before), computes an aligned subtree of the step's slots, and pushes their sum. Once the speeds of
the workers are known, a call of `sync` does this for several steps and for slots of any number: the
worker asks the first server whether the others' parts are there, and nobody waits for the
coordinator.

`allreduce` and `mirrored`: what computes holds the parameters, without servers. In `allreduce` one
call a step spans all workers that were there when the run began; they exchange gradients. A lost
worker takes its shard with it: the run ends as it does when a parameter server is lost, and resumes
from its last checkpoint with the workers that are left. In `mirrored` one function a step spans all
devices of this machine. The processor's memory has the parameters. Each device gets a copy of them,
computes its slots, and adds them up to aligned subtrees. Their sums meet on the processor in the
tree of all synchronous steps, so that the bits are those of `single`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from cluster.jobs.fit import Update
from cluster.jobs.modes import (
    ItemResult,
    Mode,
    Setup,
    Step,
    Stretch,
    float32,
    int32,
    int64,
    parts_of,
    standardization_of,
    time_after,
)
from core.consistency import CALL_SECONDS, Grant, Speeds, subtree_sizes, tree_sum
from core.consistency.synchronous import Synchronous
from core.engine.codecs import MOST_WORDS
from core.engine.runtime import Traced, host_of, trace
from core.engine.workers import Item, Outcome
from core.ground.lazy import tf
from core.status.parts import largest
from kernels.library import nodes as nodes_of
from ps_node.steps import StepShards
from worker_node.exchange import ExchangedVector, PartialSum
from worker_node.gradient import LabelledExamples, slot_sizes

HEAD = 4
"""Elements of a reply before its losses: the norm of the step before, or how many steps were done;
pull, compute and push seconds."""

MOST_UPDATES = 16
"""Steps of a call at most."""
MOST_SLOTS = 64
"""Slots of a worker in a call of several steps at most: the answer has no place for more figures
(`core.engine.codecs`)."""
WAIT_STEPS = 4.0
"""A worker waits for the others' parts CALL_SECONDS and the time of so many steps."""


@dataclass
class _Open:
    """Results of an open step so far: by slot, or of all where the servers have added them up."""

    losses: dict[int, float] = field(default_factory=dict)
    hits: dict[int, float] = field(default_factory=dict)
    norm: float = 0.0
    sums: tuple[float, float] | None = None
    """Loss and right answers."""


class SynchronousMode(Mode):
    """Whole steps."""

    def __init__(self, setup: Setup) -> None:
        """Raises ValueError for a codec with a memory."""
        super().__init__(setup)
        job = setup.job
        self._sizes = np.array(slot_sizes(job.batch_size, job.pieces), np.int32)
        self._borders = np.concatenate([[0], np.cumsum(self._sizes)])
        self.shards: StepShards = StepShards(
            setup.network.layout,
            setup.state,
            setup.optimizer,
            setup.devices,
            setup.wire,
            recipe=setup.step_recipe,
        )
        self._finish(setup.state.next_id - 1, np.zeros(job.pieces, np.float32), 1.0, 0.0)
        self._open = defaultdict[int, _Open](_Open)
        """By the step's number in the run."""
        sizes = subtree_sizes(job.pieces)
        if setup.gradient_of.takes_any_count(self.shards.nodes):
            # Each worker sets up each function: one for all sizes takes a third of the time of
            # those for 32 slots (measured). Parts too large for the answer have one of their own.
            fitting = [count for count in sizes if HEAD + 2 * count <= MOST_WORDS]
            self._train = dict.fromkeys(sizes, self._traced(None, setup, max(fitting)))
            for count in sizes[len(fitting) :]:
                self._train[count] = self._traced(count, setup)
        else:
            self._train = {count: self._traced(count, setup) for count in sizes}
        """The function for each number of slots."""
        if isinstance(self.policy, Synchronous) and setup.does_several_steps:
            self._train_several = self._traced_several(setup)
            self.policy.most_updates = MOST_UPDATES
            self.policy.most_slots = MOST_SLOTS
        self._settle = self._traced_settling()

    def _signature(self) -> list[Any]:
        """Return the specs of the arguments about the step before, and of the generation.

        The step before has its number, what counts of it, its share and its rate. The generation is
        the shards'.
        """
        return [
            int64(),
            float32(self._job.pieces),
            float32(),
            float32(),
            int64(),
        ]

    def _traced(self, slots: int | None, setup: Setup, most: int = 0) -> Traced:
        """Return the function that computes so many slots, or up to `most`, as `sizes` has."""
        windows = setup.windows
        gradient_of = setup.gradient_of
        shards = self.shards

        def train(
            before: Any,
            counted: Any,
            share: Any,
            before_rate: Any,
            generation: Any,
            step: Any,
            first: Any,
            rows: Any,
            sizes: Any,
            seed: Any,
            standardization: Any,
        ) -> Any:
            begin = tf.timestamp()
            now = shards.advance(before, counted, share, before_rate, generation)
            pulled = time_after(now.trained, now.statistics)
            inputs, classes = windows.gather(rows, standardization)
            count = slots or tf.shape(sizes)[0]
            examples = LabelledExamples(inputs, classes, sizes, windows.gather_weights(rows))
            row_names = windows.identified(rows, standardization)
            gradients = gradient_of.of_fit(standardization, row_names).sums(
                (now.trained, now.statistics), examples, (first, count), seed, shards.nodes
            )
            nodes = tf.stack(gradients.nodes)
            computed = time_after(nodes)
            figures = tf.stack([gradients.losses, gradients.hits], 1)
            sent = shards.contribute(nodes, step, first[None], generation, figures)
            pushed = time_after(sent)
            times = tf.stack([pulled - begin, computed - pulled, pushed - computed])
            seconds = tf.cast(times, tf.float32)
            return tf.concat([[now.norm], seconds, gradients.losses, gradients.hits], 0)

        return trace(
            train,
            *self._signature(),
            int64(),
            int32(),
            int32(None),
            int32(slots),
            int32(2),
            standardization_of(windows),
            name="train",
            longest=HEAD + 2 * most,
        )

    def _traced_several(self, setup: Setup) -> Traced:
        """Return the function of several steps, in each of which it waits for the others' parts.

        `first`, int32 (2,), is the first slot and `firsts` that of each subtree. The result is
        float32: steps done; seconds of pull, compute and push; the norm of the step before each;
        the last step that is closed (int64's halves); loss and right answers of each step up to
        that one (float64's halves); loss and right answers of each slot of the last step done.
        """
        windows = setup.windows
        gradient_of = setup.gradient_of
        shards = self.shards

        def train(
            begin: Any,
            generation: Any,
            patience: Any,
            rates: Any,
            seeds: Any,
            first: Any,
            firsts: Any,
            sizes: Any,
            rows: Any,
            standardization: Any,
        ) -> Any:
            steps = tf.shape(rates)[0]
            count = tf.shape(sizes)[0]
            rows = tf.reshape(rows, [steps, -1])
            all_slots = tf.ones([self._job.pieces])

            def next_step(k: Any, _: Any, seconds: Any, norms: Any, last: Any) -> tuple[Any, ...]:
                step = begin + tf.cast(k, tf.int64)
                is_whole = shards.wait_until_whole(step - 1, generation, patience)
                started = time_after(is_whole)
                with tf.control_dependencies([started]):
                    before = tf.identity(step - 1)
                now = shards.advance_if_whole(is_whole, before, all_slots, rates[k], generation)
                pulled = time_after(now.trained, now.statistics)
                inputs, classes = windows.gather(rows[k], standardization)
                examples = LabelledExamples(inputs, classes, sizes, windows.gather_weights(rows[k]))
                row_names = windows.identified(rows[k], standardization)
                gradients = gradient_of.of_fit(standardization, row_names).sums(
                    (now.trained, now.statistics),
                    examples,
                    (first[0], count),
                    seeds[k],
                    shards.nodes,
                    ragged=True,
                )
                computed = time_after(gradients.nodes)
                figures = tf.stack([gradients.losses, gradients.hits], 1)
                sent = shards.contribute(gradients.nodes, step, firsts, generation, figures)
                times = [pulled - started, computed - pulled, time_after(sent) - computed]
                # Others may have finished this step, and further ones, in its place.
                reached = tf.cast(tf.maximum(step + 1, now.step) - begin, tf.int32)
                after = tf.where(now.ready, tf.minimum(reached, steps), k)
                norms = tf.tensor_scatter_nd_update(norms, [[k]], [now.norm])
                last = tf.where(now.ready, figures, last)
                return after, now.ready, seconds + tf.stack(times), norms, last

            done, _, seconds, norms, last = tf.while_loop(
                lambda k, ready, *_: ready & (k < steps),
                next_step,
                [
                    tf.constant(0),
                    tf.constant(True),
                    tf.zeros([3], tf.float64),
                    tf.zeros([steps]),
                    tf.zeros([count, 2]),
                ],
                shape_invariants=[
                    *(tf.TensorShape(shape) for shape in ([], [], [3], [None], [None, 2]))
                ],
                parallel_iterations=1,
            )
            with tf.control_dependencies([done]):
                numbers = begin + tf.range(tf.cast(steps, tf.int64))
            head = tf.cast(tf.concat([[tf.cast(done, tf.float64)], seconds], 0), tf.float32)
            logged = shards.logged(numbers)
            return tf.concat([head, norms, logged, tf.reshape(last, [-1])], 0)

        signature = [int64(), int64(), float32(), float32(None), int32(None, 2), int32(1)]
        return trace(
            train,
            *signature,
            int32(None),
            int32(None),
            int32(None),
            standardization_of(windows),
            name="train several",
            longest=HEAD + 5 * MOST_UPDATES + 2 + 2 * MOST_SLOTS,
        )

    def _traced_settling(self) -> Traced:
        def settle(before: Any, counted: Any, share: Any, before_rate: Any, generation: Any) -> Any:
            return self.shards.advance(before, counted, share, before_rate, generation).norm

        return trace(settle, *self._signature())

    def _finish(self, step: int, counted: NDArray[np.float32], share: float, rate: float) -> None:
        """Have the next pull apply the last complete step."""
        self._before = np.int64(step), counted, np.float32(share), np.float32(rate)

    @override
    def item(self, grant: Grant, updates: Sequence[Update], stretch: Stretch) -> Item:
        if grant.several:
            return self._item_of_several(grant, updates, stretch)
        (update,) = updates
        step = stretch.first_id + grant.update
        places = slice(grant.first, grant.first + grant.slots)
        rows = update.rows[0][self._borders[grant.first] : self._borders[grant.first + grant.slots]]
        seed = self._dropout_seed(update.batches[0])
        return self._item(
            self._train[grant.slots],
            step * self._job.pieces + grant.first,
            *self._before,
            np.int64(self.shards.generation),
            np.int64(step),
            np.int32(grant.first),
            rows,
            self._sizes[places],
            seed,
            stretch.standardization,
        )

    def _item_of_several(self, grant: Grant, updates: Sequence[Update], stretch: Stretch) -> Item:
        assert isinstance(self.policy, Synchronous)
        step = stretch.first_id + grant.update
        part = slice(self._borders[grant.first], self._borders[grant.first + grant.slots])
        # A call finishes the step before each of its own, with that one's rate.
        _, _, _, before = self._before
        rates = [stretch.rate_of(update.batches[0]) for update in updates[:-1]]
        return self._item(
            self._train_several,
            step * self._job.pieces + grant.first,
            np.int64(step),
            np.int64(self.shards.generation),
            np.float32(CALL_SECONDS + WAIT_STEPS * self.policy.step_seconds),
            np.array([before, *rates], np.float32),
            np.stack([self._dropout_seed(update.batches[0]) for update in updates]),
            np.array([grant.first], np.int32),
            np.array([first for first, _ in nodes_of(grant.first, grant.slots)], np.int32),
            self._sizes[grant.first : grant.first + grant.slots],
            np.concatenate([update.rows[0][part] for update in updates]),
            stretch.standardization,
        )

    @override
    def read(
        self, grant: Grant, updates: Sequence[Update], outcome: Outcome, stretch: Stretch
    ) -> list[ItemResult]:
        step = stretch.first_id + grant.update
        if grant.several:
            done = self._note_several(grant, step, outcome.value)
        else:
            done = 1
            self._note_slots(step, grant, outcome.value[HEAD:].reshape(2, -1).T)
            self._note_norm(step, outcome.value[0])
        pull, compute, push = (float(value) / max(1, done) for value in outcome.value[1:HEAD])
        seconds = outcome.seconds
        if grant.several and parts_of((done * pull, done * compute, done * push), seconds):
            seconds = done * (pull + compute + push)  # without the wait for the others
        complete = self._replied(grant, outcome.task, seconds, done)
        steps = {
            number: self._complete(number, updates[number - grant.update], stretch)
            for number in complete
        }
        windows = int(self._sizes[grant.first : grant.first + grant.slots].sum())
        return [
            ItemResult((pull, compute, push), windows, 0.0, steps.get(update.id))
            for update in updates[:done]
        ]

    def _replied(self, grant: Grant, task: int, seconds: float, done: int) -> range:
        if isinstance(self.policy, Synchronous):
            return self.policy.replied(grant, task, seconds, done)
        return self.policy.replied(grant, task, seconds)

    def _note_slots(self, step: int, grant: Grant, figures: NDArray[np.float32]) -> None:
        """Note loss and right answers of each slot of a part, (slots, 2)."""
        opened = self._open[step]
        for slot, (loss, hits) in enumerate(figures, grant.first):
            opened.losses[slot] = float(loss)
            opened.hits[slot] = float(hits)

    def _note_norm(self, step: int, norm: np.float32) -> None:
        opened = self._open[step]
        opened.norm = largest((opened.norm, float(norm)))

    def _note_several(self, grant: Grant, step: int, value: NDArray[np.float32]) -> int:
        """Note the figures of a call of several steps; return how many it has done."""
        done = int(value[0])
        ends = HEAD + np.cumsum([grant.updates, 2, 4 * grant.updates])
        norms, closed, logged, last = np.split(value[HEAD:], ends - HEAD)
        (last_closed,) = closed.view(np.int64)
        for place, (loss, hits) in enumerate(logged.view(np.float64).reshape(-1, 2)):
            if place < done:
                self._note_norm(step + place, norms[place])
            if step + place <= last_closed:
                self._open[step + place].sums = float(loss), float(hits)
        if done and step + done - 1 > last_closed:
            self._note_slots(step + done - 1, grant, last.reshape(-1, 2))
        return done

    def _complete(self, number: int, update: Update, stretch: Stretch) -> Step:
        counted = self.policy.counted(number)
        mask = np.zeros(self._job.pieces, np.float32)
        mask[counted] = 1.0
        share = float(self._sizes.sum() / self._sizes[counted].sum())
        rate = stretch.rate_of(update.batches[0])
        step = stretch.first_id + number
        self._finish(step, mask, share, rate)
        opened = self._open.pop(step)
        if opened.sums is not None:
            loss, hits = opened.sums
        else:
            loss = tree_sum([opened.losses[place] for place in counted], lambda a, b: a + b)
            hits = sum(opened.hits[place] for place in counted)
        return Step({update.batches[0]: share * loss}, hits, opened.norm, behind=1)

    @override
    def settle(self) -> Item | None:
        """Return the item that applies the last step, which the next pull applies otherwise."""
        return Item(-1, self._settle, (*self._before, np.int64(self.shards.generation)))


def runs_of(slots: int, tasks: Sequence[int], speeds: Speeds) -> list[range]:
    """Return neighbouring slots for each worker, by its speed; some may get none."""
    total = sum(speeds.speed_of(task) for task in tasks)
    reached = 0.0
    borders = [0]
    for task in tasks:
        reached += speeds.speed_of(task)
        borders.append(round(slots * reached / total))
    return [range(begin, end) for begin, end in pairwise(borders)]


class AllreduceMode(Mode):
    """Whole steps, each one function over all workers."""

    def __init__(self, setup: Setup) -> None:
        """The places of the setup are those of the workers that take part."""
        super().__init__(setup)
        self.shards: ExchangedVector = ExchangedVector(
            setup.network.layout,
            setup.state,
            setup.optimizer,
            setup.devices,
            setup.wire,
            recipe=setup.step_recipe,
        )
        self._sizes = np.array(slot_sizes(setup.job.batch_size, setup.job.pieces), np.int32)
        self._runs = dict(zip(setup.computing, self._shared_out(setup), strict=True))
        self._train = self._traced(setup)

    def _shared_out(self, setup: Setup) -> list[range]:
        """The slots of each device that computes."""
        return runs_of(setup.job.pieces, tuple(setup.places), setup.speeds)

    def _traced(self, setup: Setup) -> Traced:
        windows = setup.windows
        gradient_of = setup.gradient_of
        shards = self.shards
        working = {place: run for place, run in self._runs.items() if len(run)}

        def train(
            rows: Any,
            sizes: Any,
            rate: Any,
            seed: Any,
            standardization: Any,
            generation: Any,
        ) -> Any:
            begin = tf.timestamp()
            shares = [tf.reduce_sum(sizes[run.start : run.stop]) for run in working.values()]
            rows_of = tf.split(rows, shares, num=len(shares))
            vectors = shards.gather(tuple(working))
            pulled = time_after(*(tensor for vector in vectors for tensor in vector))
            partial_sums: list[PartialSum] = []
            figures: list[Any] = []
            for (place, run), device_rows, (trained, statistics) in zip(
                working.items(), rows_of, vectors, strict=True
            ):
                with tf.device(host_of(place)):  # only a processor maps files
                    inputs, classes = windows.gather(device_rows, standardization)
                    weights = windows.gather_weights(device_rows)
                with tf.device(place):
                    device_sizes = sizes[run.start : run.stop]
                    row_names = windows.identified(device_rows, standardization)
                    gradients = gradient_of.of_fit(standardization, row_names).sums(
                        (trained, statistics),
                        LabelledExamples(inputs, classes, device_sizes, weights),
                        (run.start, len(run)),
                        seed,
                        shards.nodes,
                    )
                    subtrees = nodes_of(run.start, len(run))
                    partial_sums += [
                        PartialSum(first, place, node)
                        for (first, _), node in zip(subtrees, gradients.nodes, strict=True)
                    ]
                    figures.append(tf.stack([gradients.losses, gradients.hits], 1))
            computed = time_after(*(part.node for part in partial_sums))
            norm = shards.reduce_and_apply(partial_sums, rate, generation)
            pushed = time_after(norm)
            reply = tf.concat([[norm], tf.reshape(tf.concat(figures, 0), [-1])], 0)
            times = tf.stack([pulled - begin, computed - pulled, pushed - computed])
            return tf.concat([times, tf.cast(reply, tf.float64)], 0)

        # Sizes come with the call, as in `sync`. Grappler multiplies a known size into the
        # network's own constants, and the product has other bits (`docs/engine.md`).
        return trace(
            train,
            int32(None),
            int32(self._job.pieces),
            float32(),
            int32(2),
            standardization_of(windows),
            int64(),
        )

    @override
    def item(self, grant: Grant, updates: Sequence[Update], stretch: Stretch) -> Item:
        (update,) = updates
        batch = update.batches[0]
        return self._item(
            self._train,
            stretch.first_id + grant.update,
            update.rows[0],
            self._sizes,
            np.float32(stretch.rate_of(batch)),
            self._dropout_seed(batch),
            stretch.standardization,
            np.int64(self.shards.generation),
        )

    @override
    def read(
        self, grant: Grant, updates: Sequence[Update], outcome: Outcome, stretch: Stretch
    ) -> list[ItemResult]:
        (update,) = updates
        self.policy.replied(grant, outcome.task, outcome.seconds)
        pull, compute, push, norm = (float(value) for value in outcome.value[:4])
        figures = outcome.value[4:].reshape(-1, 2)
        loss = tree_sum([float(value) for value in figures[:, 0]], lambda a, b: a + b)
        step = Step({update.batches[0]: loss}, float(figures[:, 1].sum()), norm)
        return [ItemResult((pull, compute, push), self._job.batch_size, 0.0, step)]


class MirroredMode(AllreduceMode):
    """The exchange of `allreduce` with one shard; devices of one machine count as equally fast."""

    def _shared_out(self, setup: Setup) -> list[range]:
        return runs_of(setup.job.pieces, range(len(setup.computing)), Speeds())
