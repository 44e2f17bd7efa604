"""`mode: async` and `mode: ssp`: one worker pulls, computes and pushes each update, a batch."""

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
from core.consistency import Grant
from core.engine.runtime import Traced, trace
from core.engine.workers import Item, Outcome
from core.ground.lazy import tf
from ps_node.shards import Header, ParameterShards
from worker_node.sender import Sender


class AsynchronousMode(Mode):
    """Pushes of single batches."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.shards: ParameterShards = ParameterShards(
            setup.network.layout,
            setup.state,
            setup.optimizer,
            setup.devices,
            setup.wire,
            staleness_power=setup.job.staleness_power,
        )
        self._train = self._traced(setup)

    def _traced(self, setup: Setup) -> Traced:
        windows = setup.windows
        gradient_of = setup.gradient_of
        job = self._job
        shards = self.shards
        sender = Sender(shards)

        def train(
            identifier: Any,
            rows: Any,
            rate: Any,
            seed: Any,
            standardization: Any,
            owner: Any,
            workers: Any,
        ) -> Any:
            begin = tf.timestamp()
            begun = sender.begin(owner)
            trained, statistics, versions = shards.pull()
            pulled = time_after(trained, statistics)
            inputs, classes = windows.gather(rows, standardization)
            of = gradient_of.of_fit(standardization)
            batch = of(trained, statistics, inputs, classes, seed, windows.gather_weights(rows))
            computed = time_after(batch.gradient)
            header = Header(identifier, rate, versions, workers=workers)
            outcome = sender.push(begun, batch.gradient, batch.statistics, header)
            pushed = time_after(outcome.fresh)
            figures = [batch.loss, batch.hits, batch.norm, outcome.staleness, begun.forgot]
            times = [pulled - begin, computed - pulled, pushed - computed]
            return tf.stack([tf.cast(value, tf.float64) for value in [*figures, *times]])

        return trace(
            train,
            int64(),
            int32(job.batch_size),
            float32(),
            int32(2),
            standardization_of(windows),
            int64(2),
            float32(),
        )

    @override
    def item(self, grant: Grant, update: Update, stretch: Stretch) -> Item:
        number = stretch.first_id + grant.update
        batch = update.batches[0]
        return self._item(
            self._train,
            number,
            np.int64(number),
            update.rows[0],
            np.float32(stretch.rate_of(batch)),
            self._dropout_seed(batch),
            stretch.standardization,
            self._owner_now(),
            self._workers_now(stretch),
        )

    @override
    def read(self, grant: Grant, update: Update, outcome: Outcome, stretch: Stretch) -> ItemResult:
        self.policy.replied(grant, outcome.task, outcome.seconds)
        loss, hits, norm, staleness, forgot, pull, compute, push = (
            float(value) for value in outcome.value
        )
        self.memories.record_reply(outcome.task, stretch.first_id, forgot=bool(forgot))
        step = Step({update.batches[0]: loss}, hits, norm)
        return ItemResult((pull, compute, push), self._job.batch_size, staleness, step)
