"""`mode: sync` and `mode: single`: step after step, computed in parts, always the same bits.

A part pulls (which finishes the step before), computes an aligned subtree of the step's
slots, and pushes their sum.
"""

from dataclasses import dataclass, field
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
from core.consistency import Grant, subtree_sizes, tree_sum
from core.engine.runtime import Traced, trace
from core.engine.workers import Item, Outcome
from core.ground.lazy import tf
from core.status.parts import largest
from ps_node.steps import StepShards
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
            # those for 32 slots (measured).
            self._train = dict.fromkeys(sizes, self._traced(None, setup))
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

    def _traced(self, slots: int | None, setup: Setup) -> Traced:
        """Return the function that computes so many slots, or as many as `sizes` has."""
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
            gradients = gradient_of.of_fit(standardization).sums(
                (now.trained, now.statistics), examples, (first, count), seed, shards.nodes
            )
            (node,) = gradients.nodes
            computed = time_after(node)
            pushed = time_after(shards.contribute(node, step, first, generation))
            times = tf.stack([pulled - begin, computed - pulled, pushed - computed])
            figures = tf.concat([[now.norm], gradients.losses, gradients.hits], 0)
            reply = tf.cast(figures, tf.float64)
            return tf.concat([reply[:1], times, reply[1:]], 0)

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
        )

    def _traced_settling(self) -> Traced:
        def settle(before: Any, counted: Any, share: Any, before_rate: Any, generation: Any) -> Any:
            return self.shards.advance(before, counted, share, before_rate, generation).norm

        return trace(settle, *self._signature())

    def _finish(self, step: int, counted: NDArray[np.float32], share: float, rate: float) -> None:
        """Have the next pull apply the last complete step."""
        self._before = np.int64(step), counted, np.float32(share), np.float32(rate)

    @override
    def item(self, grant: Grant, update: Update, stretch: Stretch) -> Item:
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
    def read(self, grant: Grant, update: Update, outcome: Outcome, stretch: Stretch) -> ItemResult:
        values = [float(value) for value in outcome.value]
        windows = int(self._sizes[grant.first : grant.first + grant.slots].sum())
        for place in range(grant.slots):
            self._open.losses[grant.first + place] = values[HEAD + place]
            self._open.hits[grant.first + place] = values[HEAD + grant.slots + place]
        self._open.norm = largest((self._open.norm, values[0]))
        step = None
        if self.policy.replied(grant, outcome.task, outcome.seconds):
            step = self._complete(grant.update, update, stretch)
        return ItemResult((values[1], values[2], values[3]), windows, 0.0, step)

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
