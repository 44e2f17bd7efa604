"""`mode: allreduce`: the workers hold the parameters and exchange gradients; no parameter server works.

One call a step spans all workers that were there when the run began. A lost worker takes its shard with it: the run
ends as it does when a parameter server is lost, and resumes from its last checkpoint with the workers that are left.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from cluster.consistency.policy import Grant, Speeds, largest_subtree, tree_sum
from cluster.engine.messages import Item, Outcome
from cluster.engine.runtime import Traced, host_of, trace
from cluster.jobs.fit import Update
from cluster.jobs.modes.mode import FUNCTION, ItemResult, Mode, Setup, Step, Stretch, time_after
from cluster.models.network import Network
from worker_node.exchange import ExchangedVector, PartialSum
from worker_node.gradient import GradientOfBatch, piece_sizes
from worker_node.recordings import WorkerWindows, standardized_channels

import tensorflow as tf  # isort: skip


def runs_of(slots: int, tasks: Sequence[int], speeds: Speeds) -> list[range]:
    """Micro-batches of each worker: neighbouring ones, by the workers' speeds; some may get none."""
    total = sum(speeds.of(task) for task in tasks)
    reached, borders = 0.0, [0]
    for task in tasks:
        reached += speeds.of(task)
        borders.append(round(slots * reached / total))
    return [range(begin, end) for begin, end in pairwise(borders)]


class AllreduceMode(Mode):
    """Whole steps, each one function over all workers."""

    def __init__(self, setup: Setup) -> None:
        """The places of the setup are those of the workers that take part."""
        super().__init__(setup)
        self.shards: ExchangedVector = ExchangedVector(
            setup.network.layout, setup.state, setup.optimizer, setup.devices, setup.wire,
            clip_norm=setup.job.clip_norm,
        )  # fmt: skip
        self._sizes = np.array(piece_sizes(setup.job.batch_size, setup.job.pieces), np.int32)
        self._runs = dict(zip(setup.computing, self._shared_out(setup), strict=True))
        self.functions = {FUNCTION: self._traced(setup.network, setup.windows, setup.gradient_of)}

    def _shared_out(self, setup: Setup) -> list[range]:
        """The micro-batches of each device that computes."""
        return runs_of(setup.job.pieces, tuple(setup.places), setup.speeds)

    def _traced(self, network: Network, windows: WorkerWindows, gradient_of: GradientOfBatch) -> Traced:
        job, shards = self._job, self.shards
        working = {place: run for place, run in self._runs.items() if len(run)}

        def train(rows: Any, sizes: Any, rate: Any, seed: Any, standardization: Any, teacher: Any) -> Any:
            begin = tf.timestamp()
            shares = [tf.reduce_sum(sizes[run.start : run.stop]) for run in working.values()]
            rows_of = tf.split(rows, shares, num=len(shares))
            vectors = shards.gather(tuple(working))
            pulled = time_after(*(tensor for vector in vectors for tensor in vector))
            parts: list[PartialSum] = []
            figures: list[Any] = []
            for (place, run), mine, (trained, statistics) in zip(working.items(), rows_of, vectors, strict=True):
                with tf.device(host_of(place)):  # only a processor maps files
                    inputs, classes = windows.gather(mine, standardization)
                    weights = windows.gather_weights(mine)
                with tf.device(place):
                    pieces = gradient_of.of_fit(standardization, teacher).pieces(
                        trained, statistics, inputs, classes, sizes[run.start : run.stop], len(run),
                        seed + tf.constant([0, run.start]), weights,
                    )  # fmt: skip
                    leaves = [shards.nodes.leaf(piece.gradient, piece.statistics) for piece in pieces]
                    parts += self._subtrees(run, place, leaves)
                    figures += [tf.stack([piece.loss, piece.hits]) for piece in pieces]
            computed = time_after(*(part.node for part in parts))
            norm = shards.reduce_and_apply(parts, job.pieces, rate)
            pushed = time_after(norm)
            reply = tf.concat([[norm], tf.reshape(tf.stack(figures), [-1])], 0)
            times = tf.stack([pulled - begin, computed - pulled, pushed - computed])
            return tf.concat([times, tf.cast(reply, tf.float64)], 0)

        # Sizes come with the call, as in `sync`. Grappler multiplies a known size into the network's own constants, and
        # the product has other bits (`docs/modes.md`).
        return trace(
            train,
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([job.pieces], tf.int32),
            tf.TensorSpec([], tf.float32),
            tf.TensorSpec([2], tf.int32),
            tf.TensorSpec([2, standardized_channels(windows.dataset)], tf.float32),
            tf.TensorSpec([], tf.int32),
        )

    def _subtrees(self, run: range, place: str, leaves: Sequence[Any]) -> list[PartialSum]:
        """A run of leaves as sums over aligned subtrees."""
        sums, first = [], run.start
        while first < run.stop:
            count = largest_subtree(first, self._job.pieces, run.stop - first)
            mine = leaves[first - run.start : first - run.start + count]
            sums.append(PartialSum(first, place, tree_sum(mine, self.shards.nodes.add)))
            first += count
        return sums

    def item(self, grant: Grant, update: Update, stretch: Stretch) -> Item:
        """See Mode."""
        batch = update.batches[0]
        return self._item(
            stretch.first_id + grant.update, update.rows[0], self._sizes, np.float32(stretch.rate_of(batch)),
            self._dropout_seed(batch), stretch.standardization, self._teacher,
        )  # fmt: skip

    def read(self, grant: Grant, update: Update, outcome: Outcome, stretch: Stretch) -> ItemResult:
        """See Mode."""
        self.policy.replied(grant, outcome.task, outcome.seconds)
        pull, compute, push, norm = (float(value) for value in outcome.value[:4])
        figures = outcome.value[4:].reshape(-1, 2)
        loss = tree_sum([float(value) for value in figures[:, 0]], lambda a, b: a + b)
        step = Step({update.batches[0]: loss}, float(figures[:, 1].sum()), norm)
        return ItemResult((pull, compute, push), self._job.batch_size, 0.0, step)
