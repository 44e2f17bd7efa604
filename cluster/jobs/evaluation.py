"""Evaluation over the workers: each takes chunks of rows, pulls the parameters and answers with a confusion matrix."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from math import fsum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cluster.engine.messages import Item, ItemSource, Outcome
from cluster.engine.runtime import Traced, trace
from cluster.jobs.batches import chunks
from cluster.models.network import Network
from cluster.status.events import Advanced, Consumer, FiguresComputed, StageBegan
from cluster.status.parts import Figures
from ps_node.shard import PlacedVector
from worker_node.gradient import cross_entropy
from worker_node.recordings import Standardization, WorkerWindows

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

    channels = network.problem.channels
    return trace(
        evaluate,
        tf.TensorSpec([CHUNK], tf.int32),
        tf.TensorSpec([CHUNK], tf.float32),
        tf.TensorSpec([2, channels], tf.float32),
    )


class Runner(Protocol):
    """What runs items: the dispatcher over a cluster, or this process by itself."""

    @property
    def live(self) -> frozenset[int]:
        """The workers there are now."""
        ...

    def run(self, items: Iterable[Item] | ItemSource, stop: Callable[[], bool] = ...) -> Iterator[Outcome]:
        """Yields an Outcome for each item."""
        ...


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
    there = true > 0
    weights = true / windows

    def macro(values: NDArray[np.float64]) -> float:
        return float(values[there].mean())

    def weighted(values: NDArray[np.float64]) -> float:
        return float((values * weights).sum())

    return Figures(
        accuracy=float(hits.sum() / windows),
        f1_macro=macro(f1),
        f1_weighted=weighted(f1),
        precision_macro=macro(precision),
        precision_weighted=weighted(precision),
        recall_macro=macro(recall),
        recall_weighted=weighted(recall),
        loss=loss_sum / windows,
    )


def figures_computed(
    split: str, found: Figures, labels: Sequence[str], confusion: NDArray[np.int64], epoch: int | None
) -> FiguresComputed:
    """The event of an evaluation; `confusion` has shape (classes, classes), rows the true class."""
    return FiguresComputed(split, found, tuple(labels), tuple(map(tuple, confusion.tolist())), epoch)


def test_rows(train: int, test: int) -> NDArray[np.int32]:
    """Rows of the test set, which lie behind the training rows."""
    return np.arange(train, train + test, dtype=np.int32)


def tested(
    evaluator: Evaluator, rows: NDArray[np.int32], standardization: Standardization, emit: Consumer,
    stop: Callable[[], bool],
) -> tuple[Figures | None, NDArray[np.int64]]:  # fmt: skip
    """The stage `test`: figures and confusion matrix of these rows, or of those on their way once `stop()` is true."""
    emit(StageBegan("test", -(-len(rows) // CHUNK), "chunks"))
    done = count(1)
    return evaluator(rows, standardization, lambda: emit(Advanced(next(done))), stop)
