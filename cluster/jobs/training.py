"""One training run over the cluster: epochs of asynchronous updates, each followed by a look at the validation set."""

import statistics as stats
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isfinite, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.engine.dispatcher import Dispatcher
from cluster.engine.messages import Item, Outcome
from cluster.engine.runtime import trace
from cluster.engine.shards import ParameterShards
from cluster.errors import ClusterError
from cluster.inventory.training import TrainJob
from cluster.jobs.batches import Batch, Plan
from cluster.jobs.cancel import Cancel
from cluster.jobs.evaluation import Evaluator
from cluster.jobs.figures import Figures
from cluster.jobs.gradient import GradientOfBatch
from cluster.jobs.recordings import Standardization, WorkerWindows
from cluster.jobs.schedule import learning_rate
from cluster.jobs.session import Session
from cluster.jobs.training_metrics import TrainingMetrics
from cluster.jobs.wire import WireMeter
from cluster.models import Network
from cluster.parameters.layout import Vector

import tensorflow as tf  # isort: skip

FUNCTION = "train"
DIVERGED = 5.0
"""An epoch whose mean loss is this many times that of guessing is not going to come back."""


class Diverged(ClusterError):
    """The loss is not finite, or far above that of guessing."""


def traced(job: TrainJob, network: Network, windows: WorkerWindows, shards: ParameterShards) -> Callable[..., Any]:
    """The workers' function: one update under (id, rows, rate, seed, standardization).

    Returns float64 [loss, hits, gradient norm, fresh shards, staleness, pull, compute and push seconds].
    """
    gradient_of = GradientOfBatch(network, job)

    def train(identifier: Any, rows: Any, rate: Any, seed: Any, standardization: Any) -> Any:
        begin = tf.timestamp()
        trained, statistics, version = shards.pull()
        with tf.control_dependencies([trained, statistics]):
            pulled = tf.timestamp()
        inputs, classes = windows.gather(rows, standardization)
        batch = gradient_of(trained, statistics, inputs, classes, seed)
        with tf.control_dependencies([batch.gradient]):
            computed = tf.timestamp()
        outcome = shards.push(batch.gradient, batch.statistics, identifier, rate, version)
        with tf.control_dependencies([outcome.fresh]):
            pushed = tf.timestamp()
        figures = [batch.loss, batch.hits, batch.norm, outcome.fresh, outcome.staleness]
        times = [pulled - begin, computed - pulled, pushed - computed]
        return tf.stack([tf.cast(value, tf.float64) for value in [*figures, *times]])

    return trace(
        train,
        tf.TensorSpec([], tf.int64),
        tf.TensorSpec([job.batch_size], tf.int32),
        tf.TensorSpec([], tf.float32),
        tf.TensorSpec([2], tf.int32),
        tf.TensorSpec([2, network.problem.channels], tf.float32),
    )


@dataclass(frozen=True)
class EpochReport:
    """What one epoch came to; `validation` is None where nothing was held out."""

    epoch: int
    loss: float
    accuracy: float
    rate: float
    windows_per_second: float
    seconds_left: float
    validation: Figures | None


@dataclass
class Fit:
    """What a training run came to: `vector` is that of the selected epoch, the last one without validation."""

    vector: Vector
    epoch: int = 0
    selected: Figures | None = None
    epochs_done: int = 0
    scheduled: int = 0
    windows: int = 0
    train_seconds: float = 0.0
    step_seconds: list[float] = field(default_factory=list)
    staleness: list[float] = field(default_factory=list)


class Trainer:
    """Trains one network on some rows; several runs one after the other share the traced functions."""

    def __init__(
        self, session: Session, dispatcher: Dispatcher, shards: ParameterShards, job: TrainJob, cancel: Cancel,
        metrics: TrainingMetrics, wire: WireMeter, classes: int,
    ) -> None:  # fmt: skip
        self._session, self._dispatcher, self._shards, self._job = session, dispatcher, shards, job
        self._cancel, self._metrics, self._wire = cancel, metrics, wire
        self._classes = classes
        self._next_id = 0

    def fit(
        self,
        fit: Fit,
        plan: Plan,
        standardization: Standardization,
        validate: Callable[[], Figures | None] | None,
        report: Callable[[EpochReport], None],
        advance: Callable[[int, float], None],
    ) -> None:
        """Run the plan into `fit`. `advance(windows, loss)` is called for every update, `report` after every epoch.

        Raises Diverged naming the update and the learning rate. Ends early when cancelled, with the parameters of the
        selected epoch, or with those at hand if no epoch was finished.
        """
        first_id, begin = self._next_id, time.monotonic()
        self._next_id += plan.updates
        self._metrics.progress(0, plan.epochs, 0.0, self._rate(plan, 0), None)
        for epoch in range(plan.epochs):
            started = time.monotonic()
            losses, hits = self._epoch(plan, epoch, first_id, standardization, fit, advance)
            seconds = time.monotonic() - started
            fit.train_seconds += seconds
            if self._cancel.asked:
                break
            mean = stats.fmean(losses)
            self._refuse_divergence(mean, plan, epoch)
            validation = validate() if validate is not None else None
            if self._cancel.asked:
                break  # with the validation half done, if at all
            fit.epochs_done = epoch + 1
            if validation is None or fit.selected is None or validation.accuracy > fit.selected.accuracy:
                fit.vector, fit.epoch, fit.selected = self._shards.read(), epoch + 1, validation
            elapsed = time.monotonic() - begin
            rate = self._rate(plan, (epoch + 1) * plan.per_epoch - 1)
            windows = len(losses) * plan.batch_size
            left = elapsed / (epoch + 1) * (plan.epochs - epoch - 1)
            line = EpochReport(epoch + 1, mean, hits / windows, rate, windows / seconds, left, validation)
            self._metrics.progress(epoch + 1, plan.epochs, line.windows_per_second, rate, left)
            self._metrics.figures("train", mean, line.accuracy)
            if validation is not None:
                self._metrics.figures("validation", validation.loss, validation.accuracy, validation.f1_macro)
            report(line)
        if fit.epochs_done == 0 and fit.scheduled:
            fit.vector = self._shards.read()

    def _rate(self, plan: Plan, update: int) -> float:
        return learning_rate(self._job.schedule, self._job.optimizer.learning_rate, update, plan.updates)

    def _epoch(
        self, plan: Plan, epoch: int, first_id: int, standardization: Standardization, fit: Fit,
        advance: Callable[[int, float], None],
    ) -> tuple[list[float], float]:  # fmt: skip
        """Losses of the epoch's updates, and how many windows were classified right while training."""
        packed = standardization.packed()
        losses: dict[int, float] = {}
        batches: dict[int, Batch] = {}
        hits, started = 0.0, time.monotonic()

        def items(source: Iterator[Batch]) -> Iterator[Item]:
            for batch in source:
                batches[batch.id] = batch
                fit.scheduled += 1
                identifier = first_id + batch.id
                draws = identifier * self._job.micro_batches & 0x7FFFFFFF
                seed = np.array([self._job.seed & 0x7FFFFFFF, draws], np.int32)
                rate = np.float32(self._rate(plan, batch.id))
                yield Item(identifier, FUNCTION, (np.int64(identifier), batch.rows, rate, seed, packed))

        for source in (plan.fresh(epoch), None):
            before, steps = self._session.server_traffic(), len(losses)
            batches_now = source or plan.replay(epoch, dict(losses), batches)
            for outcome in self._dispatcher.run(items(batches_now), lambda: self._cancel.asked):
                identifier = outcome.item.id - first_id
                loss, right = self._account(plan, identifier, outcome, fit)
                losses[identifier] = loss
                hits += right
                pace = len(losses) * plan.batch_size / (time.monotonic() - started)
                self._metrics.pace(pace, self._rate(plan, identifier))
                advance(plan.batch_size, loss)
            if len(losses) > steps:
                self._wire.add(before, self._session.server_traffic(), len(losses) - steps)
            if self._cancel.asked or not plan.replayed:
                break
        return list(losses.values()), hits

    def _account(self, plan: Plan, identifier: int, outcome: Outcome, fit: Fit) -> tuple[float, float]:
        loss, right, norm, _, staleness, pull, compute, push = (float(value) for value in outcome.value)
        if not (isfinite(loss) and isfinite(norm)):
            raise Diverged(
                f"update {identifier} (epoch {identifier // plan.per_epoch + 1}): the loss is {loss}, the norm of the "
                f"gradient {norm} at learning rate {self._rate(plan, identifier):.3g}: lower "
                "jobs.train.optimizer.learning_rate or jobs.train.clip_norm"
            )
        fit.windows += plan.batch_size
        fit.step_seconds.append(outcome.seconds)
        fit.staleness.append(staleness)
        self._metrics.step(
            outcome.task, plan.batch_size, staleness, {"pull": pull, "compute": compute, "push": push,
                                                       "wait": max(0.0, outcome.seconds - pull - compute - push)}
        )  # fmt: skip
        return loss, right

    def _refuse_divergence(self, mean: float, plan: Plan, epoch: int) -> None:
        guessing = log(max(2, self._classes))
        if mean > DIVERGED * guessing:
            last = (epoch + 1) * plan.per_epoch - 1
            raise Diverged(
                f"epoch {epoch + 1} (update {last}): the mean loss is {mean:.3g}, that of guessing {guessing:.3g}; the "
                f"learning rate was {self._rate(plan, last):.3g}: lower jobs.train.optimizer.learning_rate"
            )


def test_rows(train: int, test: int) -> NDArray[np.int32]:
    """Rows of the test set, which lie behind the training rows."""
    return np.arange(train, train + test, dtype=np.int32)


def evaluator_for(
    evaluator: Evaluator, rows: NDArray[np.integer], standardization: Standardization, cancel: Cancel
) -> Callable[[], Figures | None] | None:
    """A function that evaluates these rows, or None where there are none."""
    if not len(rows):
        return None
    return lambda: evaluator(rows, standardization, stop=lambda: cancel.asked)[0]
