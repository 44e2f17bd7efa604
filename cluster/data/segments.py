"""Cutting labelled stretches of a recording into windows."""

import numpy as np
from numpy.typing import NDArray

from cluster.errors import DataError


def check_window(window_steps: int, window_stride: int) -> None:
    """Raises DataError when a window or its stride is shorter than one step."""
    for name, value in (("window_steps", window_steps), ("window_stride", window_stride)):
        if value < 1:
            raise DataError(f"{name}: expected at least 1 step, got {value}; the published sets use 128 at stride 64")


def cut(samples: NDArray[np.float32], window_steps: int, window_stride: int) -> NDArray[np.float32]:
    """Windows (count, window_steps, channels) of samples (steps, channels), as views; count is 0 when too short."""
    if len(samples) < window_steps:
        return np.empty((0, window_steps, samples.shape[1]), dtype=samples.dtype)
    views = np.lib.stride_tricks.sliding_window_view(samples, window_steps, axis=0)[::window_stride]
    return views.transpose(0, 2, 1)
