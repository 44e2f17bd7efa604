"""`mode: local`: a worker trains on several batches by itself, then its change is averaged into the parameters.

The inner optimizer's slots stay on the worker and are lost with it: a worker that is new, or back, begins with zeros.
Each push moves the parameters by the worker's change divided by the number of workers, so that a round of pushes is
the mean of their changes (local SGD, Stich, arXiv 1805.09767); no worker waits for another.
"""

from typing import Any

import numpy as np

from cluster.consistency.policy import Grant
from cluster.engine.messages import Item, Outcome
from cluster.engine.runtime import Traced, trace
from cluster.jobs.fit import Update
from cluster.jobs.modes.mode import FUNCTION, ItemResult, Mode, Setup, Step, Stretch, time_after
from cluster.models.network import Network
from cluster.parameters import STATISTICS_RATE
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shards import ParameterShards
from worker_node.gradient import GradientOfBatch
from worker_node.recordings import WorkerWindows, standardized_channels
from worker_node.sender import Sender

import tensorflow as tf  # isort: skip

HEAD = 5
"""Elements of a reply before its batches: staleness; pull, compute and push seconds; whether the worker forgot."""


class LocalMode(Mode):
    """Pushes of the change that several local steps made."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._options, layout, wire = setup.job.mode_options, setup.network.layout, setup.wire
        self._inner = setup.optimizer.within(layout, (0, layout.trained_size))
        momentum = self._options.outer_momentum
        self.shards: ParameterShards = ParameterShards(
            layout, setup.state, MomentumSGD(momentum, nesterov=momentum > 0), setup.devices, wire,
            statistics_rate=1.0 / setup.workers,
            remembering=bool(self._inner.slot_names) or not wire.push.stateless,
        )  # fmt: skip
        self.functions = {FUNCTION: self._traced(setup.network, setup.windows, setup.gradient_of)}

    def _traced(self, network: Network, windows: WorkerWindows, gradient_of: GradientOfBatch) -> Traced:
        job, shards, inner = self._job, self.shards, self._inner
        sender = Sender(shards, own=len(inner.slot_names))

        def train(
            identifier: Any, rows: Any, rates: Any, seeds: Any, outer_rate: Any, standardization: Any, owner: Any,
            teacher: Any,
        ) -> Any:  # fmt: skip
            begin = tf.timestamp()
            begun = sender.begin(owner)
            pulled, pulled_statistics, versions = shards.pull()
            kept = begun.settled
            arrived = time_after(pulled, pulled_statistics, kept.rows)

            def step(k: Any, trained: Any, statistics: Any, slots: Any, figures: Any) -> tuple[Any, ...]:
                inputs, classes = windows.gather(rows[k], standardization)
                weights = windows.gather_weights(rows[k])
                batch = gradient_of.of_fit(standardization, teacher)(
                    trained, statistics, inputs, classes, seeds[k], weights
                )
                after, moved = inner.stepped(
                    trained, slots, batch.gradient, rates[k], kept.count + tf.cast(k, tf.int64)
                )
                new = statistics + STATISTICS_RATE * (batch.statistics - statistics)
                line = tf.stack([batch.loss, batch.hits, batch.norm])
                return k + 1, after, new, moved, tf.tensor_scatter_nd_update(figures, [[k]], [line])

            _, trained, statistics, slots, figures = tf.while_loop(
                lambda k, *_: k < tf.shape(rows)[0],
                step,
                [
                    tf.constant(0),
                    pulled,
                    pulled_statistics,
                    kept.rows[: sender.own],
                    tf.zeros([self._options.steps, 3]),
                ],
                parallel_iterations=1,
            )
            computed = time_after(trained)
            outcome = sender.push(
                begun, pulled - trained, statistics, identifier, outer_rate, versions, slots, tf.shape(rows)[0]
            )
            pushed = time_after(outcome.fresh)
            times = tf.stack([arrived - begin, computed - arrived, pushed - computed])
            head = tf.concat([[tf.cast(outcome.staleness, tf.float64)], times, [begun.forgot]], 0)
            return tf.concat([head, tf.cast(tf.reshape(figures, [-1]), tf.float64)], 0)

        return trace(
            train,
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([None, job.batch_size], tf.int32),
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec([None, 2], tf.int32),
            tf.TensorSpec([], tf.float32),
            tf.TensorSpec([2, standardized_channels(windows.dataset)], tf.float32),
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([], tf.int32),
        )

    def item(self, grant: Grant, update: Update, stretch: Stretch) -> Item:
        """See Mode."""
        number = stretch.first_id + grant.update
        rates = np.array([stretch.rate_of(batch) for batch in update.batches], np.float32)
        seeds = np.stack([self._dropout_seed(batch) for batch in update.batches])
        outer_rate = np.float32(self._options.outer_rate / max(1, stretch.live()))
        return self._item(
            number, np.int64(number), update.rows, rates, seeds, outer_rate, stretch.standardization,
            np.int64(self._owner + stretch.first_id), self._teacher,
        )  # fmt: skip

    def read(self, grant: Grant, update: Update, outcome: Outcome, stretch: Stretch) -> ItemResult:
        """See Mode."""
        self.policy.replied(grant, outcome.task, outcome.seconds / len(update.batches))
        staleness, pull, compute, push, forgot = (float(value) for value in outcome.value[:HEAD])
        self.memories.heard(outcome.task, stretch.first_id, forgot=bool(forgot))
        lines = outcome.value[HEAD:].reshape(-1, 3)[: len(update.batches)]
        losses = {batch: float(line[0]) for batch, line in zip(update.batches, lines, strict=True)}
        step = Step(losses, float(lines[:, 1].sum()), float(lines[:, 2].max()))
        return ItemResult((pull, compute, push), len(losses) * self._job.batch_size, staleness, step)
