"""What traced functions take: tensors by type and shape. None is a size that each call may set."""

from typing import Any

from core.ground.lazy import tf
from worker_node.recordings import WorkerWindows, standardized_channels


def float32(*shape: int | None) -> Any:
    """A float32 tensor of this shape."""
    return tf.TensorSpec(shape, tf.float32)


def int32(*shape: int | None) -> Any:
    """An int32 tensor of this shape."""
    return tf.TensorSpec(shape, tf.int32)


def int64(*shape: int | None) -> Any:
    """An int64 tensor of this shape."""
    return tf.TensorSpec(shape, tf.int64)


def standardization_of(windows: WorkerWindows) -> Any:
    """Mean and deviation of each channel."""
    return float32(2, standardized_channels(windows.dataset))
