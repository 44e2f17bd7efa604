"""The prepared examples in a worker's graph: mapped, gathered by row, standardized.

How much each example counts in the loss of a training is here too: by its class, by its own weight.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.dataset import CLASSIFICATION, Array, Dataset
from core.ground.errors import UsageError
from core.ground.lazy import tf
from core.models.native import RowsOfSet
from core.models.objective import over_positions

CONSTANT = 1e-6
"""A channel that varies less than this, or than this share of its mean, is not scaled: dividing by
almost zero would inflate later windows. Float32 has seven digits."""
ROWS_AT_ONCE = 512
BYTES_AT_ONCE = 2**29
"""Bound of what a sum over rows reads at a time, as float64: the smaller of both, but one example
at least."""

BLOCK_ROWS = 250
"""Rows that a network measures at a time."""


def standardized_channels(dataset: Dataset) -> int:
    """Return the width of what graphs standardize with.

    It is the inputs' last axis, 0 for a set that is not standardized.
    """
    if dataset.standardized:
        return dataset.input_shape[-1]
    return 0


@dataclass(frozen=True)
class Standardization:
    """Mean and standard deviation of each channel, float32 (channels,), over training examples.

    Both are empty for a set that is not standardized.
    """

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    @classmethod
    def of_rows(cls, dataset: Dataset, rows: NDArray[np.integer]) -> "Standardization":
        """Measure these rows of the data set, in float64, one block at a time."""
        channels = standardized_channels(dataset)
        if not channels:
            return cls(np.empty(0, np.float32), np.empty(0, np.float32))
        inputs = dataset.windows()
        total = np.zeros(channels)
        squares = np.zeros(channels)
        count = 0
        all_but_last = tuple(range(len(dataset.input_shape)))
        at_once = max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // (8 * inputs[0].size)))
        for start in range(0, len(rows), at_once):
            block = np.asarray(inputs[rows[start : start + at_once]], np.float64)
            total += block.sum(all_but_last)
            squares += (block * block).sum(all_but_last)
            count += block.size // channels
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean * mean, 0.0))
        least = CONSTANT * np.maximum(1.0, np.abs(mean))
        return cls(
            mean.astype(np.float32),
            np.where(deviation < least, 1.0, deviation).astype(np.float32),
        )

    def blocks(self, dataset: Dataset, rows: NDArray[np.integer]) -> Iterator[NDArray[np.float32]]:
        """These rows of the data set as a network gets them, some at a time, (n, *input_shape)."""
        inputs = dataset.windows()
        for start in range(0, len(rows), BLOCK_ROWS):
            yield (
                np.asarray(inputs[rows[start : start + BLOCK_ROWS]], np.float32) - self.mean
            ) / self.deviation

    def packed(self) -> NDArray[np.float32]:
        """Both in one tensor, float32 (2, channels), as graphs take it."""
        return np.stack([self.mean, self.deviation])


@dataclass(frozen=True)
class WorkerWindows:
    """Reads examples on the worker that runs the graph.

    The data set's folder must have the same path there.

    It maps the files: all processes of the node share their pages, and the kernel can evict them.
    """

    dataset: Dataset

    def gather(self, rows: Any, standardization: Any) -> tuple[Any, Any]:
        """Inputs (n, *input_shape) and targets (n, *targets.shape) of `rows`, int32 (n,).

        Where the set is standardized the inputs are float32, less the mean and over the deviation
        of `standardization`, float32 (2, channels); elsewhere they, and the targets, have the dtype
        of their file.
        """
        dataset = self.dataset
        inputs = tf.gather(self._mapped(dataset.inputs), rows)
        if dataset.standardized:
            inputs = (tf.cast(inputs, tf.float32) - standardization[0]) / standardization[1]
        return inputs, tf.gather(self._mapped(dataset.targets), rows)

    def identified(self, rows: Any, standardization: Any) -> RowsOfSet:
        """Say which examples `gather` returns for the same arguments."""
        dataset = self.dataset
        name = f"{dataset.sha256} {dataset.folder} {dataset.inputs.file}"
        digest = np.frombuffer(sha256(name.encode()).digest(), np.int32)
        moments = tf.bitcast(tf.reshape(standardization, [-1]), tf.int32)
        return RowsOfSet(rows, tf.concat([digest, moments], 0), dataset.rows)

    def gather_weights(self, rows: Any) -> Any:
        """Return how much each of `rows`, int32 (n,), counts, float32 (n,).

        It is None for a set without weights.
        """
        weights = self.dataset.weights
        if weights is None:
            return None
        return tf.gather(self._mapped(weights), rows)

    def _mapped(self, array: Array) -> Any:
        return tf.raw_ops.ImmutableConst(
            dtype=tf.as_dtype(array.dtype),
            shape=[self.dataset.rows, *array.shape],
            memory_region_name=str(self.dataset.folder / array.file),
        )


SHOWN_LABELS = 20
BLOCK_BYTES = 2**22
"""Bytes of classes that are looked at at a time."""


@dataclass(frozen=True)
class LossWeights:
    """`table`, float32 (classes,), is None where all classes count alike.

    `mean` is over the training examples.
    """

    table: NDArray[np.float32] | None = None
    mean: float = 1.0

    @classmethod
    def from_setting(
        cls, setting: str | Mapping[str, float] | None, dataset: Dataset, rows: NDArray[np.integer]
    ) -> "LossWeights":
        """Return what `jobs.train.class_weights` means for the training examples `rows`.

        Raises UsageError where examples have no classes, and for a label that the data does not
        have.
        """
        table = None
        weights = np.ones(len(rows))
        if setting is not None:
            if dataset.task != CLASSIFICATION:
                raise UsageError(
                    "jobs.train.class_weights: expected data with one class for each example or"
                    f" position, got {dataset.summary()}: set it to none"
                )
            counts = np.zeros(len(dataset.labels), np.int64)
            for block in _classes(dataset, rows):
                counts += np.bincount(block.reshape(-1), minlength=len(counts))
            table = _table(setting, dataset.labels, counts)
            means = [table[block].astype(np.float64).mean(1) for block in _classes(dataset, rows)]
            weights = np.concatenate([weights[:0], *means])
        if dataset.weights is not None:
            weights = weights * dataset.mapped(dataset.weights)[rows]
        return cls(table, float(weights.mean()) if len(rows) else 1.0)


def _classes(dataset: Dataset, rows: NDArray[np.integer]) -> Iterator[NDArray[np.int32]]:
    """Yield the classes of some rows at a time, (n, positions).

    Images have more of them than a coordinator has memory.
    """
    classes = dataset.target_values()
    at_once = max(1, BLOCK_BYTES // dataset.targets.example_bytes)
    for start in range(0, len(rows), at_once):
        block = np.asarray(classes[rows[start : start + at_once]], np.int32)
        yield block.reshape(len(block), -1)


def _table(
    setting: str | Mapping[str, float], labels: Sequence[str], counts: NDArray[np.integer]
) -> NDArray[np.float32]:
    if not isinstance(setting, str):
        unknown = sorted(set(setting) - set(labels))
        if unknown:
            choices = ", ".join(labels[:SHOWN_LABELS]) + (
                ", ..." if len(labels) > SHOWN_LABELS else ""
            )
            raise UsageError(
                f"jobs.train.class_weights: {unknown[0]!r} is not a label of this data: choose"
                f" among {choices}"
            )
        return np.array([setting.get(label, 1.0) for label in labels], np.float32)
    present = counts > 0
    # A class without training examples weighs nothing here: 1 instead of a division by zero.
    balanced: NDArray[np.float64] = counts.sum() / (present.sum() * np.maximum(counts, 1))
    return np.where(present, balanced, 1.0).astype(np.float32)


def weighted(losses: Any, classes: Any, table: NDArray[np.float32] | None, weights: Any) -> Any:
    """Multiply each of the losses (n,) by the weights of its class and of its example.

    `classes` are int32 (n,), `table` has a weight for each class, and `weights`, float32 (n,), one
    for each example. Losses and classes of positions, (n, ...), become the mean over them, each
    times the weight of its own class. Without a table and without weights losses (n,) stay as they
    are. Raises UsageError for a table and losses of examples whose positions have classes.
    """
    if table is not None:
        if len(losses.shape) != len(classes.shape):
            raise UsageError(
                "jobs.train.class_weights: expected loss() to answer with a value for each"
                f" position, as the classes are, got {len(losses.shape)} axes instead of"
                f" {len(classes.shape)}: leave out its mean, or set class_weights to null"
            )
        losses = losses * tf.gather(tf.constant(table), classes)
    losses = over_positions(losses)
    if weights is None:
        return losses
    return losses * weights
