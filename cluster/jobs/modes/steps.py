"""The modes of whole steps, always with the same bits: `sync`, `single`, `allreduce`, `mirrored`.

`sync` and `single`: step after step, computed in parts. A part pulls (which finishes the step
before), computes an aligned subtree of the step's slots, and pushes their sum.

`allreduce` and `mirrored`: what computes holds the parameters, without servers. In `allreduce` one
call a step spans all workers that were there when the run began; they exchange gradients. A lost
worker takes its shard with it: the run ends as it does when a parameter server is lost, and resumes
from its last checkpoint with the workers that are left. In `mirrored` one function a step spans all
devices of this machine. The processor's memory has the parameters. Each device gets a copy of them,
computes its slots, and adds them up to aligned subtrees. Their sums meet on the processor in the
tree of all synchronous steps, so that the bits are those of `single`.
"""

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
    standardization_of,
    time_after,
)
from core.consistency import Grant, Speeds, subtree_sizes, tree_sum
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
"""Elements of a reply before its losses: the norm of the step before; pull, compute and push
seconds."""


@dataclass
class _Open:
    """Results of the present step so far, by slot."""

    losses: dict[int, float] = field(default_factory=dict)
    hits: dict[int, float] = field(default_factory=dict)
    norm: float = 0.0


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
        self._open = _Open()
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
            (node,) = gradients.nodes
            computed = time_after(node)
            pushed = time_after(shards.contribute(node, step, first, generation))
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

    def _traced_settling(self) -> Traced:
        def settle(before: Any, counted: Any, share: Any, before_rate: Any, generation: Any) -> Any:
            return self.shards.advance(before, counted, share, before_rate, generation).norm

        return trace(settle, *self._signature())

    def _finish(self, step: int, counted: NDArray[np.float32], share: float, rate: float) -> None:
        """Have the next pull apply the last complete step."""
        self._before = np.int64(step), counted, np.float32(share), np.float32(rate)

    @override
    def item(self, grant: Grant, updates: Sequence[Update], stretch: Stretch) -> Item:
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

    @override
    def read(
        self, grant: Grant, updates: Sequence[Update], outcome: Outcome, stretch: Stretch
    ) -> list[ItemResult]:
        (update,) = updates
        values = [float(value) for value in outcome.value]
        windows = int(self._sizes[grant.first : grant.first + grant.slots].sum())
        for place in range(grant.slots):
            self._open.losses[grant.first + place] = values[HEAD + place]
            self._open.hits[grant.first + place] = values[HEAD + grant.slots + place]
        self._open.norm = largest((self._open.norm, values[0]))
        step = None
        if self.policy.replied(grant, outcome.task, outcome.seconds):
            step = self._complete(grant.update, update, stretch)
        return [ItemResult((values[1], values[2], values[3]), windows, 0.0, step)]

    def _complete(self, number: int, update: Update, stretch: Stretch) -> Step:
        counted = self.policy.counted(number)
        mask = np.zeros(self._job.pieces, np.float32)
        mask[counted] = 1.0
        share = float(self._sizes.sum() / self._sizes[counted].sum())
        rate = stretch.rate_of(update.batches[0])
        self._finish(stretch.first_id + number, mask, share, rate)
        opened = self._open
        self._open = _Open()
        loss = share * tree_sum([opened.losses[place] for place in counted], lambda a, b: a + b)
        hits = sum(opened.hits[place] for place in counted)
        return Step({update.batches[0]: loss}, hits, opened.norm, behind=1)

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
