"""The modes of one call a step: `allreduce` and `mirrored`, with the bits of all whole steps.

What computes holds the parameters, without servers. In `allreduce` one call a step spans all
workers that were there when the run began; they exchange gradients. A lost worker takes its shard
with it: the run ends as it does when a parameter server is lost, and resumes from its last
checkpoint with the workers that are left. In `mirrored` one function a step spans all devices of
this machine. The processor's memory has the parameters. Each device gets a copy of them, computes
its slots, and adds them up to aligned subtrees. Their sums meet on the processor in the tree of all
synchronous steps, so that the bits are those of `single`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
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
from core.consistency import Grant, Speeds, tree_sum
from core.engine.runtime import Traced, host_of, trace
from core.engine.workers import Item, Outcome
from core.ground.lazy import tf
from kernels.library import nodes as nodes_of
from worker_node.exchange import ExchangedVector, PartialSum
from worker_node.gradient import LabelledExamples, slot_sizes


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
