"""The modes whose updates are pushes, applied as they arrive: `async`, `ssp` and `local`.

`async` and `ssp`: one worker pulls, computes and pushes each update, a batch. In `async` one call
does several of them, one after the other, where they are short: a call costs the coordinator, the
worker and the servers as much as a pull and a push do. `local`: a worker trains on several batches,
then its change is averaged in.

In `local` the inner optimizer's slots stay on the worker and are lost with it: a worker that is
new, or back, begins with zeros. Each push moves the parameters by the worker's change divided by
the number of workers, so that a round of pushes is the mean of their changes (local SGD, Stich,
arXiv 1805.09767); no worker waits for another.
"""

from collections.abc import Callable, Sequence
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
from core.consistency import MOST_UPDATES, Grant
from core.engine.runtime import Traced, trace
from core.engine.workers import Item, Outcome
from core.ground.lazy import tf
from core.parameters import STATISTICS_RATE
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import Constraints
from ps_node.shards import Header, ParameterShards
from worker_node.recordings import WorkerWindows
from worker_node.sender import Sender

FIGURES = 8
"""Elements of a reply for each update: loss, right answers, norm, staleness, whether the worker
forgot; pull, compute and push seconds."""


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
        update = self._update_of(setup)
        self._train = self._traced(update, setup)
        if setup.several_a_call:
            # Apart: one update in a loop costs each server two messages more.
            self._train_several = self._traced_several(update, setup)
            self.policy.most_updates = MOST_UPDATES

    def _update_of(self, setup: Setup) -> Callable[..., Any]:
        """Return the function of one update; its results are float32 [FIGURES]."""
        windows = setup.windows
        gradient_of = setup.gradient_of
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
            of = gradient_of.of_fit(standardization, windows.identified(rows, standardization))
            batch = of(trained, statistics, inputs, classes, seed, windows.gather_weights(rows))
            computed = time_after(batch.gradient)
            header = Header(identifier, rate, versions, workers=workers)
            outcome = sender.push(begun, batch.gradient, batch.statistics, header)
            pushed = time_after(outcome.fresh)
            figures = [batch.loss, batch.hits, batch.norm, outcome.staleness, begun.forgot]
            times = [pulled - begin, computed - pulled, pushed - computed]
            return tf.stack([tf.cast(value, tf.float32) for value in [*figures, *times]])

        return train

    def _traced(self, update: Callable[..., Any], setup: Setup) -> Traced:
        return trace(
            update,
            int64(),
            int32(self._job.batch_size),
            float32(),
            int32(2),
            *self._shared_signature(setup.windows),
            name="train",
        )

    @staticmethod
    def _shared_signature(windows: WorkerWindows) -> list[Any]:
        """Return the specs of what all updates of a call share."""
        return [standardization_of(windows), int64(2), float32()]

    def _traced_several(self, update: Callable[..., Any], setup: Setup) -> Traced:
        """Return the function of several updates, one after the other.

        Its result is their figures, float32 [updates * FIGURES].
        """

        def train(first: Any, rows: Any, rates: Any, seeds: Any, *shared: Any) -> Any:
            count = tf.shape(rows)[0]

            def next_update(k: Any, figures: Any) -> tuple[Any, Any]:
                identifier = first + tf.cast(k, tf.int64)
                line = update(identifier, rows[k], rates[k], seeds[k], *shared)
                return k + 1, tf.tensor_scatter_nd_update(figures, [[k]], [line])

            _, figures = tf.while_loop(
                lambda k, _: k < count,
                next_update,
                [tf.constant(0), tf.zeros([count, FIGURES])],
                shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, FIGURES])],
                parallel_iterations=1,
            )
            return tf.reshape(figures, [-1])

        return trace(
            train,
            int64(),
            int32(None, self._job.batch_size),
            float32(None),
            int32(None, 2),
            *self._shared_signature(setup.windows),
            name="train",
            longest=MOST_UPDATES * FIGURES,
        )

    @override
    def item(self, grant: Grant, updates: Sequence[Update], stretch: Stretch) -> Item:
        number = stretch.first_id + grant.update
        batches = [update.batches[0] for update in updates]
        rates = np.array([stretch.rate_of(batch) for batch in batches], np.float32)
        seeds = np.stack([self._dropout_seed(batch) for batch in batches])
        shared = (stretch.standardization, self._owner_now(), self._workers_now(stretch))
        rows = np.concatenate([update.rows for update in updates])
        if grant.updates > 1:
            arguments = (np.int64(number), rows, rates, seeds)
            return self._item(self._train_several, number, *arguments, *shared)
        arguments = (np.int64(number), rows[0], rates[0], seeds[0])
        return self._item(self._train, number, *arguments, *shared)

    @override
    def read(
        self, grant: Grant, updates: Sequence[Update], outcome: Outcome, stretch: Stretch
    ) -> list[ItemResult]:
        self.policy.replied(grant, outcome.task, outcome.seconds / grant.updates)
        results = []
        for update, figures in zip(updates, outcome.value.reshape(-1, FIGURES), strict=True):
            loss, hits, norm, staleness, forgot, *seconds = map(float, figures)
            self.memories.record_reply(outcome.task, stretch.first_id, forgot=bool(forgot))
            step = Step({update.batches[0]: loss}, hits, norm)
            pull, compute, push = seconds
            results.append(ItemResult((pull, compute, push), self._job.batch_size, staleness, step))
        return results


HEAD = 5
"""Elements of a reply before its batches: staleness; pull, compute and push seconds; whether the
worker forgot."""


class LocalMode(Mode):
    """Pushes of the change that several local steps made."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._options = setup.job.mode_options
        layout = setup.network.layout
        wire = setup.wire
        self._inner = setup.optimizer.within(layout, (0, layout.trained_size))
        self._constraints = Constraints(layout, (0, layout.trained_size))
        momentum = self._options.outer_momentum
        self.shards: ParameterShards = ParameterShards(
            layout,
            setup.state,
            setup.arithmetic.optimizer(MomentumSGD(momentum, nesterov=momentum > 0)),
            setup.devices,
            wire,
            remembering=bool(self._inner.slot_names) or not wire.push.stateless,
        )
        self._train = self._traced(setup)

    def _traced(self, setup: Setup) -> Traced:
        windows = setup.windows
        gradient_of = setup.gradient_of
        shards = self.shards
        inner = self._inner
        constraints = self._constraints
        sender = Sender(shards, caller_row_count=len(inner.slot_names))

        def train(
            identifier: Any,
            rows: Any,
            rates: Any,
            seeds: Any,
            outer: Any,
            standardization: Any,
            owner: Any,
        ) -> Any:
            begin = tf.timestamp()
            begun = sender.begin(owner)
            pulled, pulled_statistics, versions = shards.pull()
            memory = begun.settled
            arrived = time_after(pulled, pulled_statistics, memory.rows)

            def step(
                k: Any, trained: Any, statistics: Any, slots: Any, figures: Any
            ) -> tuple[Any, ...]:
                inputs, classes = windows.gather(rows[k], standardization)
                weights = windows.gather_weights(rows[k])
                row_names = windows.identified(rows[k], standardization)
                batch = gradient_of.of_fit(standardization, row_names)(
                    trained, statistics, inputs, classes, seeds[k], weights
                )
                after, moved = inner.stepped(
                    trained, slots, batch.gradient, rates[k], memory.count + tf.cast(k, tf.int64)
                )
                if constraints:
                    after = constraints.applied(after)
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
                    memory.rows[: sender.caller_row_count],
                    tf.zeros([self._options.steps, 3]),
                ],
                parallel_iterations=1,
            )
            computed = time_after(trained)
            header = Header(
                identifier, outer[0], versions, statistics_rate=outer[1], workers=outer[2]
            )
            outcome = sender.push(
                begun, pulled - trained, statistics, header, slots, tf.shape(rows)[0]
            )
            pushed = time_after(outcome.fresh)
            times = tf.stack([arrived - begin, computed - arrived, pushed - computed])
            head = tf.concat([[tf.cast(outcome.staleness, tf.float64)], times, [begun.forgot]], 0)
            return tf.concat([head, tf.cast(tf.reshape(figures, [-1]), tf.float64)], 0)

        return trace(train, *self._signature(windows))

    def _signature(self, windows: WorkerWindows) -> list[Any]:
        return [
            int64(),
            int32(None, self._job.batch_size),
            float32(None),
            int32(None, 2),
            float32(3),
            standardization_of(windows),
            int64(2),
        ]

    @override
    def item(self, grant: Grant, updates: Sequence[Update], stretch: Stretch) -> Item:
        (update,) = updates
        number = stretch.first_id + grant.update
        rates = np.array([stretch.rate_of(batch) for batch in update.batches], np.float32)
        seeds = np.stack([self._dropout_seed(batch) for batch in update.batches])
        # A round of pushes is the mean over the workers that are in the cluster, of the statistics
        # too.
        workers = self._workers_now(stretch)
        outer = np.array([self._options.outer_rate / workers, 1.0 / workers, workers], np.float32)
        return self._item(
            self._train,
            number,
            np.int64(number),
            update.rows,
            rates,
            seeds,
            outer,
            stretch.standardization,
            self._owner_now(),
        )

    @override
    def read(
        self, grant: Grant, updates: Sequence[Update], outcome: Outcome, stretch: Stretch
    ) -> list[ItemResult]:
        (update,) = updates
        self.policy.replied(grant, outcome.task, outcome.seconds / len(update.batches))
        staleness, pull, compute, push, forgot = (float(value) for value in outcome.value[:HEAD])
        self.memories.record_reply(outcome.task, stretch.first_id, forgot=bool(forgot))
        lines = outcome.value[HEAD:].reshape(-1, 3)[: len(update.batches)]
        losses = {batch: float(line[0]) for batch, line in zip(update.batches, lines, strict=True)}
        step = Step(losses, float(lines[:, 1].sum()), float(lines[:, 2].max()))
        windows = len(losses) * self._job.batch_size
        return [ItemResult((pull, compute, push), windows, staleness, step)]
