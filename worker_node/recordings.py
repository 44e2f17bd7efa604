"""The prepared windows in a worker's graph: mapped from the file, gathered by row, standardized."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data import Dataset
from cluster.lazy import tf

CONSTANT = 1e-6
"""A channel that varies less than this is not scaled: dividing by almost zero would inflate later windows."""


@dataclass(frozen=True)
class Standardization:
    """Mean and standard deviation of each channel, float32 (channels,), over a model's training windows."""

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    @classmethod
    def of(cls, dataset: Dataset, rows: NDArray[np.integer]) -> "Standardization":
        """Of these rows of the data set, summed in float64 one block at a time."""
        windows = dataset.windows()
        total, squares, count = np.zeros(dataset.channels), np.zeros(dataset.channels), 0
        for start in range(0, len(rows), 512):
            block = np.asarray(windows[rows[start : start + 512]], np.float64)
            total += block.sum((0, 1))
            squares += (block * block).sum((0, 1))
            count += block.shape[0] * block.shape[1]
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean * mean, 0.0))
        return cls(mean.astype(np.float32), np.where(deviation < CONSTANT, 1.0, deviation).astype(np.float32))

    def packed(self) -> NDArray[np.float32]:
        """Both in one tensor, float32 (2, channels), as graphs take it."""
        return np.stack([self.mean, self.deviation])


@dataclass(frozen=True)
class WorkerWindows:
    """Reads windows on the worker that runs the graph; the data set's folder must have the same path there.

    It maps the file: all processes of the node share its pages, and the kernel can evict them.
    """

    dataset: Dataset

    def gather(self, rows: Any, standardization: Any) -> tuple[Any, Any]:
        """Standardized windows float32 (n, steps, channels) and classes int32 (n,) of `rows`, int32 (n,).

        `standardization` is float32 (2, channels): mean and deviation.
        """
        count = self.dataset.train_windows + self.dataset.test_windows
        shape = [count, self.dataset.window_steps, self.dataset.channels]
        windows = tf.raw_ops.ImmutableConst(
            dtype=tf.float32, shape=shape, memory_region_name=str(self.dataset.folder / "windows.f32")
        )
        classes = tf.raw_ops.ImmutableConst(
            dtype=tf.int32, shape=[count], memory_region_name=str(self.dataset.folder / "classes.i32")
        )
        chosen = (tf.gather(windows, rows) - standardization[0]) / standardization[1]
        return chosen, tf.gather(classes, rows)

    def gather_weights(self, rows: Any) -> Any:
        """How much each of `rows`, int32 (n,), counts: float32 (n,); None for a set without weights."""
        return None
