"""A call's arguments as one tensor: each further one would cost a message's worth of the coordinator's time.

On the wire: the unknown first dimensions, one int32 each, then every argument's bits in 32-bit words. Nothing computes
with the words, so no bit changes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cluster.engine.environment  # noqa: F401  (before tensorflow)

import tensorflow as tf  # isort: skip

WORD_BYTES = 4


@dataclass(frozen=True)
class _Argument:
    dtype: Any
    shape: tuple[int | None, ...]

    @property
    def words_a_row(self) -> int:
        """32-bit words of one row, or of all of it if its shape is known."""
        known = self.shape[1:] if self.open else self.shape
        words: int = self.dtype.size // WORD_BYTES
        return math.prod(size or 0 for size in known) * words

    @property
    def open(self) -> bool:
        """Whether the number of its rows is known only with the call."""
        return bool(self.shape) and self.shape[0] is None


class PackedArguments:
    """How the arguments of one signature (tf.TensorSpec) become one int32 vector, and arguments again."""

    def __init__(self, signature: Sequence[Any]) -> None:
        """Raises ValueError for types of less than 32 bits, and for an unknown dimension that is not the first."""
        self._arguments = [_Argument(spec.dtype, tuple(spec.shape)) for spec in signature]
        for argument in self._arguments:
            if argument.dtype.size % WORD_BYTES or None in argument.shape[1:]:
                raise ValueError(
                    f"expected arguments of 32-bit words, of which only the first dimension may be unknown, got "
                    f"{argument.dtype.name} {list(argument.shape)}"
                )
        self._open = [argument for argument in self._arguments if argument.open]

    @property
    def signature(self) -> Any:
        """Of the packed tensor."""
        known = len(self._open) + sum(argument.words_a_row for argument in self._arguments)
        return tf.TensorSpec([None if self._open else known], tf.int32)

    def pack(self, values: Sequence[Any]) -> NDArray[np.int32]:
        """The vector. Raises ValueError if the values do not fit the signature."""
        arrays = [np.asarray(value, order="C") for value in values]
        fits = len(arrays) == len(self._arguments) and all(map(_fits, arrays, self._arguments))
        if not fits:
            expected = ", ".join(f"{each.dtype.name} {list(each.shape)}" for each in self._arguments)
            got = ", ".join(f"{array.dtype} {list(array.shape)}" for array in arrays)
            raise ValueError(f"expected the arguments {expected}, got {got}")
        rows = [len(array) for array, argument in zip(arrays, self._arguments, strict=True) if argument.open]
        return np.concatenate([np.array(rows, np.int32), *(array.reshape(-1).view(np.int32) for array in arrays)])

    def unpack(self, packed: Any) -> list[Any]:
        """The arguments out of the vector, in a graph."""
        unknown = iter(tf.unstack(packed[: len(self._open)], num=len(self._open)))
        rows = [next(unknown) if each.open else 1 for each in self._arguments]
        sizes = [each.words_a_row * count for each, count in zip(self._arguments, rows, strict=True)]
        parts = tf.split(packed, [len(self._open), *sizes], num=len(sizes) + 1)[1:]
        return [_restored(*each) for each in zip(parts, self._arguments, rows, strict=True)]


def _fits(array: NDArray[Any], argument: _Argument) -> bool:
    shape = argument.shape
    same = array.ndim == len(shape) and array.shape[argument.open :] == shape[argument.open :]
    return bool(same and array.dtype == argument.dtype.as_numpy_dtype)


def _restored(words: Any, argument: _Argument, rows: Any) -> Any:
    shape = tf.stack([rows, *argument.shape[1:]]) if argument.open else argument.shape
    if argument.dtype.size == WORD_BYTES:
        return tf.reshape(tf.bitcast(words, argument.dtype), shape)
    return tf.reshape(tf.bitcast(tf.reshape(words, [-1, argument.dtype.size // WORD_BYTES]), argument.dtype), shape)
