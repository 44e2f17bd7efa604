"""The modes of steps in parts, always with the same bits: `sync` and `single`.

A part pulls, which finishes the step before, computes an aligned subtree of the step's slots, and
pushes their sum. Where the library computes, a part of `sync` has any number of slots, and a call
does several steps (`several_steps`).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
)
from cluster.jobs.modes.several_steps import SeveralDone, SeveralSteps, part_of_step
from core.consistency import MOST_UPDATES, Grant, subtree_sizes, tree_sum
from core.engine.runtime import Traced, trace
from core.engine.workers import Item, Outcome
from core.ground.lazy import tf
from core.status.parts import largest
from ps_node.step_shards import StepShards
from worker_node.gradient import slot_sizes

HEAD = 4
"""Elements of a reply before its losses: the norm of the step before; pull, compute and push
seconds."""


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
        """Each has the number of its step in the run."""
        self._several: SeveralSteps | None = None
        self._train: dict[int, Traced] = {}
        """The function for each number of slots, where a call does no several steps."""
        if setup.several_a_call:
            self._several = SeveralSteps(setup, self.shards)
            self.policy.most_updates = MOST_UPDATES
        else:
            sizes = subtree_sizes(job.pieces)
            if not job.facts.needs_roles():
                sizes = (job.pieces,)
            self._train = {count: self._traced(count, setup) for count in sizes}
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

    def _traced(self, slots: int, setup: Setup) -> Traced:
        """Return the function that computes so many slots."""
        shards = self.shards
        part = part_of_step(setup, shards, slots)

        def train(
            before: Any,
            counted: Any,
            share: Any,
            before_rate: Any,
            generation: Any,
            step: Any,
            firsts: Any,
            *part_arguments: Any,
        ) -> Any:
            begin = tf.timestamp()
            now = shards.advance(before, counted, share, before_rate, generation)
            ends, figures, _ = part(now, step, generation, firsts, *part_arguments)
            times = tf.stack(ends) - tf.stack([begin, *ends[:-1]])
            head = [[now.norm], tf.cast(times, tf.float32)]
            return tf.concat([*head, tf.reshape(figures, [-1])], 0)

        return trace(
            train,
            *self._signature(),
            int64(),
            int32(1),
            int32(slots),
            int32(None),
            int32(2),
            standardization_of(setup.windows),
            name="part",
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
        if self._several is not None:
            return self._item_of_several(self._several, grant, updates, stretch)
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
            np.array([grant.first], np.int32),
            self._sizes[places],
            rows,
            seed,
            stretch.standardization,
        )

    def _item_of_several(
        self, several: SeveralSteps, grant: Grant, updates: Sequence[Update], stretch: Stretch
    ) -> Item:
        step = stretch.first_id + grant.update
        _, _, _, before = self._before
        slots = range(grant.first, grant.first + grant.slots)
        windows = slice(self._borders[slots.start], self._borders[slots.stop])
        return self._item(
            several.function(grant.slots),
            step * self._job.pieces + grant.first,
            *several.arguments(
                step,
                self.shards.generation,
                self.policy.step_seconds,
                [float(before), *(stretch.rate_of(update.batches[0]) for update in updates[:-1])],
                [self._dropout_seed(update.batches[0]) for update in updates],
                slots,
            ),
            self._sizes[slots.start : slots.stop],
            np.concatenate([update.rows[0][windows] for update in updates]),
            stretch.standardization,
        )

    @override
    def read(
        self, grant: Grant, updates: Sequence[Update], outcome: Outcome, stretch: Stretch
    ) -> list[ItemResult]:
        step = stretch.first_id + grant.update
        if self._several is None:
            norm, pull, compute, push = map(float, outcome.value[:HEAD])
            figures = outcome.value[HEAD:].reshape(-1, 2)
            call = SeveralDone(1, 1, (pull, compute, push), {step: norm}, {}, figures)
            seconds = outcome.seconds
        else:
            call = SeveralDone.of(outcome.value, step, grant.updates)
            seconds = sum(call.seconds) / max(1, call.computed)
            if not parts_of(call.seconds, outcome.seconds):  # its clock was set meanwhile
                seconds = outcome.seconds / grant.updates
        self._note(call, step + call.done - 1, grant.first)
        complete = self.policy.replied(grant, outcome.task, seconds, call.done)
        steps = {
            number: self._complete(number, updates[number - grant.update], stretch)
            for number in complete
        }
        windows = int(self._sizes[grant.first : grant.first + grant.slots].sum())
        pull, compute, push = (total / max(1, call.computed) for total in call.seconds)
        results = []
        for place, update in enumerate(updates[: call.done]):
            result = ItemResult((pull, compute, push), windows, 0.0, steps.get(update.id))
            if place < call.done - call.computed:
                result = replace(result, seconds=(0.0, 0.0, 0.0), windows=0)
            results.append(result)
        return results

    def _note(self, call: SeveralDone, last: int, first: int) -> None:
        """Note the figures of a call whose last step is `last`, of slots from `first` on.

        Those of steps that are complete by now are no news.
        """
        finished, *_ = self._before
        for step, norm in call.norms.items():
            if step > finished:
                self._open[step].norm = largest((self._open[step].norm, norm))
        for step, sums in call.sums.items():
            if step > finished:
                self._open[step].sums = sums
        if call.figures is not None and last > finished:
            for slot, (loss, hits) in enumerate(call.figures, first):
                self._open[last].losses[slot] = float(loss)
                self._open[last].hits[slot] = float(hits)

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
