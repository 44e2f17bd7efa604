"""The prepared examples in a worker's graph: mapped, gathered by row, standardized."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data import Dataset
from core.data.dataset import Array
from core.ground.lazy import tf

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
    def of(cls, dataset: Dataset, rows: NDArray[np.integer]) -> "Standardization":
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
