"""The job `evaluate`: a trained model's figures on the test set; and evaluation itself, of a training's epochs too.

Each worker takes chunks of rows, pulls the parameters and answers with a confusion matrix.
"""

from collections.abc import Callable, Sequence
from itertools import count
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data import Dataset
from cluster.engine.messages import Item
from cluster.engine.runtime import Traced, trace
from cluster.errors import UsageError
from cluster.jobs.fit import chunks
from cluster.jobs.lifecycle import Job
from cluster.jobs.run_folder import RunFolder, newest_model, sabotage
from cluster.jobs.session import Runner, Session
from cluster.jobs.sources import load_dataset
from cluster.jobs.train_result import StoredModel, describe_dataset, describe_figures, digest_of, load
from cluster.models.network import Network
from cluster.status.events import Advanced, Consumer, Evaluated, FiguresComputed, StageBegan
from cluster.status.parts import Figures
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import PlacedVector, VectorState
from ps_node.shards import ParameterShards
from worker_node.gradient import cross_entropy
from worker_node.recordings import Standardization, WorkerWindows, standardized_channels

import tensorflow as tf  # isort: skip

CHUNK = 250
"""Windows of one dispatch: large enough that the pull does not count, small enough for every worker to get some."""
FUNCTION = "evaluate"


def traced(network: Network, windows: WorkerWindows, shards: PlacedVector[Any]) -> Traced:
    """The workers' function: (rows, weights, standardization) to confusion counts and the loss sum, flattened."""
    classes_count = network.problem.classes

    def evaluate(rows: Any, weights: Any, standardization: Any) -> Any:
        # Every bit: the figures are those of the parameters that are stored, whatever the codec of the training.
        trained, statistics, _ = shards.pull(exact=True)
        named = network.unpack(tf.concat([trained, statistics], 0))
        inputs, classes = windows.gather(rows, standardization)
        logits = network.apply(named, inputs, training=False, seed=tf.zeros([2], tf.int32)).logits
        losses = cross_entropy(logits, classes, classes_count, 0.0) * weights
        confusion = tf.math.confusion_matrix(
            classes, tf.argmax(logits, 1, tf.int32), classes_count, weights=weights, dtype=tf.float32
        )
        return tf.concat([tf.reshape(confusion, [-1]), [tf.reduce_sum(losses)]], 0)

    return trace(
        evaluate,
        tf.TensorSpec([CHUNK], tf.int32),
        tf.TensorSpec([CHUNK], tf.float32),
        tf.TensorSpec([2, standardized_channels(windows.dataset)], tf.float32),
    )


class Evaluator:
    """Evaluates the parameters as the servers hold them."""

    def __init__(
        self, dispatcher: Runner, classes: int, reply: Callable[[int, int, float], None] = lambda *_: None
    ) -> None:
        """`reply` gets the task, the windows and the seconds of each reply."""
        self._dispatcher, self._classes, self._reply = dispatcher, classes, reply
        self._ids = count(-1, -1)
        """Below zero: an evaluation changes nothing, so its ids must never meet those of updates."""

    def __call__(
        self,
        rows: NDArray[np.integer],
        standardization: Standardization,
        advance: Callable[[], None] = lambda: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> tuple[Figures | None, NDArray[np.int64]]:
        """Figures and confusion matrix (rows the true class) over these rows of the data set.

        Once `stop()` is true, over those that were on their way by then; None if that was none.
        """
        total, losses = np.zeros(self._classes * self._classes, np.int64), list[float]()
        packed = standardization.packed()
        items = (
            Item(next(self._ids), FUNCTION, (chunk, weights, packed))
            for chunk, weights in chunks(rows.astype(np.int32), CHUNK)
        )
        for outcome in self._dispatcher.run(items, stop):
            counts = np.rint(outcome.value[:-1]).astype(np.int64)
            total += counts
            losses.append(float(outcome.value[-1]))
            self._reply(outcome.task, int(counts.sum()), outcome.seconds)
            advance()
        confusion = total.reshape(self._classes, self._classes)
        # An exact sum: the same bits in whatever order the workers answered.
        return figures(confusion, fsum(losses)) if total.any() else None, confusion


def figures(confusion: NDArray[np.int64], loss_sum: float) -> Figures:
    """Figures of `confusion`, shape (classes, classes), rows the true class; `loss_sum` over all its windows."""
    windows = int(confusion.sum())
    if windows == 0:
        raise ValueError("no window was evaluated")
    hits = np.diag(confusion).astype(np.float64)
    true, predicted = confusion.sum(1).astype(np.float64), confusion.sum(0).astype(np.float64)
    precision = np.divide(hits, predicted, out=np.zeros_like(hits), where=predicted > 0)
    recall = np.divide(hits, true, out=np.zeros_like(hits), where=true > 0)
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros_like(hits), where=total > 0)
    there, weights = true > 0, true / windows
    found = {"f1": f1, "precision": precision, "recall": recall}
    return Figures(
        accuracy=float(hits.sum() / windows),
        **{f"{name}_macro": float(values[there].mean()) for name, values in found.items()},
        **{f"{name}_weighted": float((values * weights).sum()) for name, values in found.items()},
        loss=loss_sum / windows,
    )


def figures_computed(
    split: str, found: Figures, labels: Sequence[str], confusion: NDArray[np.int64], epoch: int | None
) -> FiguresComputed:
    """The event of an evaluation; `confusion` has shape (classes, classes), rows the true class."""
    return FiguresComputed(split, found, tuple(labels), tuple(map(tuple, confusion.tolist())), epoch)


def tested(
    evaluator: Evaluator, dataset: Dataset, standardization: Standardization, emit: Consumer, stop: Callable[[], bool]
) -> tuple[Figures | None, NDArray[np.int64]]:
    """The stage `test`: figures and confusion matrix of the windows on their way until `stop()` is true."""
    rows = np.arange(dataset.train_windows, dataset.train_windows + dataset.test_windows, dtype=np.int32)
    emit(StageBegan("test", -(-len(rows) // CHUNK), "chunks"))
    done = count(1)
    return evaluator(rows, standardization, lambda: emit(Advanced(next(done))), stop)


class EvaluateRun(Job):
    """One run of the job."""

    name = "evaluate"

    evaluated_run: Path | None = None
    dataset: Dataset | None = None
    model: StoredModel | None = None
    final: Figures | None = None
    confusion: NDArray[np.int64] | None = None

    def prepare(self) -> None:
        """Load the model and the recordings; raises ClusterError if they do not fit together, and Cancelled."""
        named = self.inventory.jobs.evaluate.run
        run = self.evaluated_run = Path(named) if named else newest_model(Path(self.inventory.runs))
        model = self.model = load(run / "model")
        dataset = self.dataset = load_dataset(self.inventory, self.display, self.cancel, self.stream.emit)
        problem = model.network.problem
        expected = (problem.window_steps, problem.channels, model.labels)
        if expected != (dataset.window_steps, dataset.channels, dataset.labels):
            raise UsageError(
                f"{run}: the model takes windows of {problem.window_steps} x {problem.channels} of the classes "
                f"{', '.join(model.labels)}; {dataset.source} has {dataset.window_steps} x {dataset.channels} of "
                f"{', '.join(dataset.labels)}: evaluate it on data like that it was trained on (--data)"
            )
        try:
            model.network.layout.shards(len(self.inventory.of_role("ps")))
        except ValueError as refused:
            raise UsageError(f"nodes: {refused}") from None

    def run(self, folder: RunFolder) -> None:
        """Evaluate. Raises ClusterError; when cancelled it ends with what there is by then."""
        assert self.model is not None
        assert self.dataset is not None
        with Session(self.inventory, self.cancel, self.metrics, self.display) as session:
            network = self.model.network
            shards = ParameterShards(network.layout, VectorState(self.model.vector), MomentumSGD(), session.places)
            function = traced(network, WorkerWindows(self.dataset), shards)
            saboteur, _ = sabotage(self.chaos, folder.path, len(session.places), self.stream.emit)
            dispatcher = session.dispatch({FUNCTION: function}, self.inventory.jobs.train.deadline_seconds, saboteur)
            evaluator = Evaluator(
                dispatcher, len(self.dataset.labels),
                lambda task, windows, seconds: self.stream.emit(Evaluated(task, windows, seconds)),
            )  # fmt: skip
            self.final, self.confusion = tested(
                evaluator, self.dataset, self.model.standardization, self.stream.emit, lambda: self.cancel.asked
            )
        if self.final is not None:
            self.stream.emit(figures_computed("test", self.final, self.dataset.labels, self.confusion, None))

    def complete(self) -> bool:
        """Whether every test window was looked at."""
        return (
            self.confusion is not None
            and self.dataset is not None
            and (int(self.confusion.sum()) == self.dataset.test_windows)
        )

    def result(self) -> dict[str, Any]:
        """What there is so far."""
        return {
            **super().result(),
            "evaluated_run": str(self.evaluated_run) if self.evaluated_run else None,
            "evaluated_windows": int(self.confusion.sum()) if self.confusion is not None else 0,
            "dataset": describe_dataset(self.dataset),
            "model": self.model.network.describe() if self.model else None,
            "final": describe_figures(self.final),
            "confusion": self.confusion.tolist() if self.confusion is not None else None,
            "parameters_sha256": digest_of(self.model.vector) if self.model else None,
        }
