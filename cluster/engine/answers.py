"""A call's result inside the answer to the call: as the sizes of an empty tensor.

TensorFlow leaves a call's result on the worker. To have it, the coordinator asks the worker to send it, and receives
it: two more requests, and half of its processor time for a call (measured). The answer to the call itself carries the
shapes of what the worker keeps. So a short result becomes a shape: a tensor without a value whose first size is 0, and
whose other sizes are the result's bits, in 32-bit words.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cluster.engine.environment  # noqa: F401  (before tensorflow)

import tensorflow as tf  # isort: skip

WORD_BYTES = 4
MOST_WORDS = 250
"""TensorFlow knows up to 254 dimensions."""


class AnswerAsShape:
    """How results of one type and shape travel as a shape."""

    def __init__(self, dtype: Any, shape: tuple[int, ...]) -> None:
        self._dtype, self._shape = dtype, shape

    @staticmethod
    def fits(result: Any) -> bool:
        """Whether this result, in a graph, is one short tensor of 32-bit words whose shape is known."""
        if not isinstance(result, tf.Tensor) or not result.shape.is_fully_defined():
            return False
        plain = result.dtype.is_floating or result.dtype.is_integer
        words, rest = divmod(math.prod(result.shape) * result.dtype.size, WORD_BYTES)
        return plain and result.dtype.size >= WORD_BYTES and not rest and words <= MOST_WORDS

    @classmethod
    def of(cls, result: Any) -> "AnswerAsShape":
        """For such a result."""
        return cls(result.dtype.as_numpy_dtype, tuple(result.shape))

    @staticmethod
    def written(result: Any) -> Any:
        """The empty tensor, in a graph."""
        words = tf.cast(tf.reshape(tf.bitcast(result, tf.uint32), [-1]), tf.int64)
        return tf.fill(tf.concat([tf.zeros([1], tf.int64), words], 0), tf.constant(0, tf.int32))

    def read(self, answer: Any) -> NDArray[Any]:
        """The result."""
        found: NDArray[Any] = np.array(answer.shape.as_list()[1:], np.uint32).view(self._dtype)
        return found.reshape(self._shape)
