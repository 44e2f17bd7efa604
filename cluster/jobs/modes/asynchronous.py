"""`mode: async` and `mode: ssp`: each update is one batch, pulled, computed and pushed by one worker."""

from typing import Any

import numpy as np

from cluster.consistency.policy import Grant
from cluster.engine.messages import Item, Outcome
from cluster.engine.runtime import Traced, trace
from cluster.inventory.training import TrainJob
from cluster.jobs.batches import Update
from cluster.jobs.modes.mode import Memories, Mode, Reply, Setup, Step, Stretch
from cluster.models.network import Network
from ps_node.shards import ParameterShards
from worker_node.gradient import GradientOfBatch
from worker_node.recordings import WorkerWindows
from worker_node.sender import Sender

import tensorflow as tf  # isort: skip

FUNCTION = "train"


class AsynchronousMode(Mode):
    """Pushes of single batches."""

    def __init__(self, setup: Setup) -> None:
        self._job, self.policy, self._owner = setup.job, setup.policy, setup.owner
        self.memories = Memories()
        self.shards: ParameterShards = ParameterShards(
            setup.network.layout, setup.state, setup.optimizer, setup.devices, setup.wire,
            staleness_power=setup.job.staleness_power,
        )  # fmt: skip
        self.functions = {FUNCTION: self._traced(setup.network, setup.windows)}

    def _traced(self, network: Network, windows: WorkerWindows) -> Traced:
        job, shards = self._job, self.shards
        gradient_of = GradientOfBatch(network, job)
        sender = Sender(shards)

        def train(identifier: Any, rows: Any, rate: Any, seed: Any, standardization: Any, owner: Any) -> Any:
            begin = tf.timestamp()
            begun = sender.begin(owner)
            trained, statistics, versions = shards.pull()
            with tf.control_dependencies([trained, statistics]):
                pulled = tf.timestamp()
            inputs, classes = windows.gather(rows, standardization)
            batch = gradient_of(trained, statistics, inputs, classes, seed)
            with tf.control_dependencies([batch.gradient]):
                computed = tf.timestamp()
            outcome = sender.push(begun, batch.gradient, batch.statistics, identifier, rate, versions)
            with tf.control_dependencies([outcome.fresh]):
                pushed = tf.timestamp()
            figures = [batch.loss, batch.hits, batch.norm, outcome.staleness, begun.forgot]
            times = [pulled - begin, computed - pulled, pushed - computed]
            return tf.stack([tf.cast(value, tf.float64) for value in [*figures, *times]])

        return trace(
            train,
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([job.batch_size], tf.int32),
            tf.TensorSpec([], tf.float32),
            tf.TensorSpec([2], tf.int32),
            tf.TensorSpec([2, network.problem.channels], tf.float32),
            tf.TensorSpec([], tf.int64),
        )

    def item(self, grant: Grant, update: Update, stretch: Stretch) -> Item:
        """See Mode."""
        identifier = stretch.first_id + grant.update
        seed = dropout_seed(self._job, update.batches[0])
        rate = np.float32(stretch.rate_of(update.batches[0]))
        arguments = (
            np.int64(identifier), update.rows[0], rate, seed, stretch.standardization,
            np.int64(self._owner + stretch.first_id),
        )  # fmt: skip
        return Item(identifier, FUNCTION, arguments, self._job.facts.repeatable)

    def read(self, grant: Grant, update: Update, outcome: Outcome, stretch: Stretch) -> Reply:
        """See Mode."""
        self.policy.replied(grant, outcome.task, outcome.seconds)
        loss, hits, norm, staleness, forgot, pull, compute, push = (float(value) for value in outcome.value)
        self.memories.heard(outcome.task, stretch.first_id, forgot=bool(forgot))
        step = Step({update.batches[0]: loss}, hits, norm, staleness)
        return Reply((pull, compute, push), self._job.batch_size, staleness, step)


def dropout_seed(job: TrainJob, batch: int, micro_batch: int = 0) -> np.ndarray:
    """int32 (2,): the seed of a micro-batch's dropout, from the job's seed and the micro-batch's number alone."""
    draws = (batch * job.pieces + micro_batch) & 0x7FFFFFFF
    return np.array([job.seed & 0x7FFFFFFF, draws], np.int32)
