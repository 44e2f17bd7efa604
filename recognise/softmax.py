"""Probabilities of logits."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Float = TypeVar("Float", np.float32, np.float64)


def softmax(logits: NDArray[Float]) -> NDArray[Float]:
    """Return the softmax of finite logits (..., classes), in their dtype and without overflow."""
    raised: NDArray[Float] = np.exp(logits - logits.max(axis=-1, keepdims=True))
    raised /= raised.sum(axis=-1, keepdims=True)
    return raised
