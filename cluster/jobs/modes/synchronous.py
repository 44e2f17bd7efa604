"""`mode: sync` and `mode: single`: one step after the other, computed in parts, with the same bits however it was cut.

A part pulls (which finishes the step before), computes an aligned subtree of the step's micro-batches, and pushes
their sum.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.consistency.policy import Grant, subtree_sizes, tree_sum
from cluster.engine.messages import Item, Outcome
from cluster.engine.runtime import Traced, trace
from cluster.jobs.fit import Update
from cluster.jobs.modes.mode import ItemResult, Mode, Setup, Step, Stretch, time_after
from cluster.models.network import Network
from ps_node.steps import StepShards
from worker_node.gradient import GradientOfBatch, piece_sizes
from worker_node.recordings import WorkerWindows, standardized_channels

import tensorflow as tf  # isort: skip

SETTLE = "settle"
HEAD = 4
"""Elements of a reply before its losses: the norm of the step before; pull, compute and push seconds."""


def part_function(slots: int) -> str:
    """Name of the function that computes `slots` micro-batches."""
    return f"train_{slots}"


@dataclass
class _Open:
    """Results of the present step so far, by micro-batch."""

    losses: dict[int, float] = field(default_factory=dict)
    hits: dict[int, float] = field(default_factory=dict)
    norm: float = 0.0


class SynchronousMode(Mode):
    """Whole steps."""

    def __init__(self, setup: Setup) -> None:
        """Raises ValueError for a codec with a memory."""
        super().__init__(setup)
        job, network, windows = setup.job, setup.network, setup.windows
        self._sizes = np.array(piece_sizes(job.batch_size, job.pieces), np.int32)
        self._borders = np.concatenate([[0], np.cumsum(self._sizes)])
        self.shards: StepShards = StepShards(
            network.layout, setup.state, setup.optimizer, setup.devices, setup.wire,
            slots=job.pieces, clip_norm=job.clip_norm,
        )  # fmt: skip
        self._finish(setup.state.next_id - 1, np.zeros(job.pieces, np.float32), 1.0, 0.0)
        self._open = _Open()
        gradient_of = setup.gradient_of
        self.functions: dict[str, Traced] = {
            part_function(count): self._traced(count, network, windows, gradient_of)
            for count in subtree_sizes(job.pieces)
        }
        self.functions[SETTLE] = self._traced_settling()

    def _signature(self) -> list[Any]:
        """Of the step before: its number, what counts of it, its share and rate."""
        return [
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([self._job.pieces], tf.float32),
            tf.TensorSpec([], tf.float32),
            tf.TensorSpec([], tf.float32),
        ]

    def _traced(self, count: int, network: Network, windows: WorkerWindows, gradient_of: GradientOfBatch) -> Traced:
        shards = self.shards

        def train(
            before: Any, counted: Any, share: Any, before_rate: Any, step: Any, first: Any, rows: Any, sizes: Any,
            seed: Any, standardization: Any, teacher: Any,
        ) -> Any:  # fmt: skip
            begin = tf.timestamp()
            now = shards.advance(before, counted, share, before_rate)
            pulled = time_after(now.trained, now.statistics)
            inputs, classes = windows.gather(rows, standardization)
            weights = windows.gather_weights(rows)
            of = gradient_of.of_fit(standardization, teacher)
            pieces = of.pieces(now.trained, now.statistics, inputs, classes, sizes, count, seed, weights)
            leaves = [shards.nodes.leaf(piece.gradient, piece.statistics) for piece in pieces]
            node = tree_sum(leaves, shards.nodes.add)
            computed = time_after(node)
            pushed = time_after(shards.contribute(node, step, first))
            times = tf.stack([pulled - begin, computed - pulled, pushed - computed])
            figures = [now.norm, *(piece.loss for piece in pieces), *(piece.hits for piece in pieces)]
            reply = tf.stack([tf.cast(value, tf.float64) for value in figures])
            return tf.concat([reply[:1], times, reply[1:]], 0)

        return trace(
            train,
            *self._signature(),
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([], tf.int32),
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([count], tf.int32),
            tf.TensorSpec([2], tf.int32),
            tf.TensorSpec([2, standardized_channels(windows.dataset)], tf.float32),
            tf.TensorSpec([], tf.int32),
        )

    def _traced_settling(self) -> Traced:
        def settle(before: Any, counted: Any, share: Any, before_rate: Any) -> Any:
            return self.shards.advance(before, counted, share, before_rate).norm

        return trace(settle, *self._signature())

    def _finish(self, step: int, counted: NDArray[np.float32], share: float, rate: float) -> None:
        """Have the next pull apply the last complete step."""
        self._before = np.int64(step), counted, np.float32(share), np.float32(rate)

    def item(self, grant: Grant, update: Update, stretch: Stretch) -> Item:
        """See Mode."""
        step = stretch.first_id + grant.update
        places = slice(grant.first, grant.first + grant.slots)
        rows = update.rows[0][self._borders[grant.first] : self._borders[grant.first + grant.slots]]
        seed = self._dropout_seed(update.batches[0], grant.first)
        return self._item(
            step * self._job.pieces + grant.first, *self._before, np.int64(step), np.int32(grant.first), rows,
            self._sizes[places], seed, stretch.standardization, self._teacher, function=part_function(grant.slots),
        )  # fmt: skip

    def read(self, grant: Grant, update: Update, outcome: Outcome, stretch: Stretch) -> ItemResult:
        """See Mode."""
        values = [float(value) for value in outcome.value]
        windows = int(self._sizes[grant.first : grant.first + grant.slots].sum())
        for place in range(grant.slots):
            self._open.losses[grant.first + place] = values[HEAD + place]
            self._open.hits[grant.first + place] = values[HEAD + grant.slots + place]
        self._open.norm = max(self._open.norm, values[0])
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
        opened, self._open = self._open, _Open()
        loss = share * tree_sum([opened.losses[place] for place in counted], lambda a, b: a + b)
        return Step({update.batches[0]: loss}, sum(opened.hits[place] for place in counted), opened.norm)

    def settle(self) -> Item | None:
        """See Mode: the next pull applies the last step; without one, this item does."""
        return Item(-1, SETTLE, self._before)
