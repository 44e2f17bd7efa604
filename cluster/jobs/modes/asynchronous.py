"""`mode: async` and `mode: ssp`: each update is one batch, pulled, computed and pushed by one worker."""

from typing import Any

import numpy as np

from cluster.consistency.policy import Grant
from cluster.engine.messages import Item, Outcome
from cluster.engine.runtime import Traced, trace
from cluster.jobs.fit import Update
from cluster.jobs.modes.mode import FUNCTION, ItemResult, Mode, Setup, Step, Stretch, time_after
from cluster.models.network import Network
from ps_node.shards import ParameterShards
from worker_node.gradient import GradientOfBatch
from worker_node.recordings import WorkerWindows, standardized_channels
from worker_node.sender import Sender

import tensorflow as tf  # isort: skip


class AsynchronousMode(Mode):
    """Pushes of single batches."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.shards: ParameterShards = ParameterShards(
            setup.network.layout, setup.state, setup.optimizer, setup.devices, setup.wire,
            staleness_power=setup.job.staleness_power,
        )  # fmt: skip
        self.functions = {FUNCTION: self._traced(setup.network, setup.windows, setup.gradient_of)}

    def _traced(self, network: Network, windows: WorkerWindows, gradient_of: GradientOfBatch) -> Traced:
        job, shards = self._job, self.shards
        sender = Sender(shards)

        def train(
            identifier: Any, rows: Any, rate: Any, seed: Any, standardization: Any, owner: Any, teacher: Any
        ) -> Any:
            begin = tf.timestamp()
            begun = sender.begin(owner)
            trained, statistics, versions = shards.pull()
            pulled = time_after(trained, statistics)
            inputs, classes = windows.gather(rows, standardization)
            of = gradient_of.of_fit(standardization, teacher)
            batch = of(trained, statistics, inputs, classes, seed, windows.gather_weights(rows))
            computed = time_after(batch.gradient)
            outcome = sender.push(begun, batch.gradient, batch.statistics, identifier, rate, versions)
            pushed = time_after(outcome.fresh)
            figures = [batch.loss, batch.hits, batch.norm, outcome.staleness, begun.forgot]
            times = [pulled - begin, computed - pulled, pushed - computed]
            return tf.stack([tf.cast(value, tf.float64) for value in [*figures, *times]])

        return trace(
            train,
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([job.batch_size], tf.int32),
            tf.TensorSpec([], tf.float32),
            tf.TensorSpec([2], tf.int32),
            tf.TensorSpec([2, standardized_channels(windows.dataset)], tf.float32),
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([], tf.int32),
        )

    def item(self, grant: Grant, update: Update, stretch: Stretch) -> Item:
        """See Mode."""
        number, batch = stretch.first_id + grant.update, update.batches[0]
        return self._item(
            number, np.int64(number), update.rows[0], np.float32(stretch.rate_of(batch)), self._dropout_seed(batch),
            stretch.standardization, np.int64(self._owner + stretch.first_id), self._teacher,
        )  # fmt: skip

    def read(self, grant: Grant, update: Update, outcome: Outcome, stretch: Stretch) -> ItemResult:
        """See Mode."""
        self.policy.replied(grant, outcome.task, outcome.seconds)
        loss, hits, norm, staleness, forgot, pull, compute, push = (float(value) for value in outcome.value)
        self.memories.heard(outcome.task, stretch.first_id, forgot=bool(forgot))
        step = Step({update.batches[0]: loss}, hits, norm)
        return ItemResult((pull, compute, push), self._job.batch_size, staleness, step)
