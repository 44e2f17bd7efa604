"""How values travel between workers and parameter servers, one module a codec.

A codec turns `size` float32 values into `words(size)` float32 elements and back. Other types travel
as the bits of float32 elements, because one tensor a shard travels each way (docs/engine.md); no
operation of a codec computes with such an element, so none changes its bits. All sizes are known
when a function is traced. Equal input gives equal bits, whatever the number of threads.

Arguments of a call: each further tensor would cost the coordinator the time of one more message. So
one tensor carries them all: the unknown first dimensions, one int32 each, then the bits of every
argument in 32-bit words. Nothing computes with the words, so no bit changes.

Results: TensorFlow leaves the result of a call on the worker and answers with its shape alone. To
read the values, the coordinator sends two more requests: one that has the worker send them, one
that receives them. They take half of the processor time that a call costs the coordinator
(measured). The shape costs nothing: it is in the answer that the coordinator waits for anyway. So
the worker puts a short result into a shape. It returns an empty tensor whose first size is 0, which
makes it empty, and whose other sizes are the bits of the result as 32-bit words. The coordinator
reads the sizes and turns the words back into values.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from core.ground.lazy import np, tf
from core.inventory.extensions import CodecFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from core.inventory.fields import Choice

EXTENSIONS = {
    "fp32": "fp32:Fp32",
    "fp16": "fp16:Fp16",
    "int8": "int8:Int8",
    "int4": "int4:Int4",
    "onebit": "onebit:OneBit",
    "topk": "topk:TopK",
}
"""Module and class by `jobs.train.codec.name`, in the order of the tables."""


class Codec(CodecFacts, ABC):
    """How values travel."""

    @classmethod
    def from_options(cls, options: Choice) -> Self:
        """Make the codec of the options that are named like its fields.

        Other fields keep their defaults.
        """
        field_names = {entry.name for entry in fields(cls)}  # type: ignore[arg-type]
        option_names = field_names & set(type(options).model_fields)
        return cls(**{name: getattr(options, name) for name in option_names})

    def within(self, updates_an_epoch: int) -> Self:
        """This codec in a training of so many updates an epoch."""
        del updates_an_epoch
        return self

    @property
    def for_pulls(self) -> Codec | None:
        """The codec of parameters beside this one; None sends them as float32."""
        if self.stateless:
            return self
        return None

    @property
    def memory_rows(self) -> int:
        """Count the rows of the memory that a sender keeps between its pushes.

        It is float32 (memory_rows, size), zeros at first.
        """
        return 0

    @property
    def stateless(self) -> bool:
        """Whether the sender keeps nothing, so that what travels depends on the values alone."""
        return self.memory_rows == 0

    @property
    def varies(self) -> bool:
        """Return whether the wire's size depends on the update.

        Then `words` is the size that it ends with.
        """
        return False

    def limited(self, values: Any, workers: Any) -> Any:
        """The whole vector, before its shards' parts are encoded: a place to cut it by its norm.

        `workers`, float32, is how many are in the cluster now.
        """
        del workers
        return values

    def encode_update(self, values: Any, memory: Any, update: Any) -> tuple[Any, Any]:
        """`encode` for the update of this number, int64."""
        del update
        return self.encode(values, memory)

    @abstractmethod
    def words(self, size: int) -> int:
        """Float32 elements on the wire for `size` values."""

    @abstractmethod
    def encode(self, values: Any, memory: Any) -> tuple[Any, Any]:
        """Return wire float32 (words(size),) and new memory.

        `values` are float32 (size,), `memory` is (memory_rows, size).
        """

    @abstractmethod
    def decode(self, wire: Any, size: int) -> Any:
        """Values float32 (size,) from wire float32 (words(size),)."""


WORD_BYTES = 4
MOST_WORDS = 250
"""TensorFlow has at most 254 dimensions."""


@dataclass(frozen=True)
class _Argument:
    dtype: Any
    shape: tuple[int | None, ...]

    @property
    def words_a_row(self) -> int:
        """32-bit words of one row, or of the whole argument if its shape is known."""
        if self.open:
            fixed_shape = self.shape[1:]
        else:
            fixed_shape = self.shape
        element_words: int = self.dtype.size // WORD_BYTES
        return math.prod(size or 0 for size in fixed_shape) * element_words

    @property
    def open(self) -> bool:
        """Whether only the call says how many rows it has."""
        return bool(self.shape) and self.shape[0] is None


class PackedArguments:
    """Packs the arguments of one signature (tf.TensorSpec) into one int32 vector."""

    def __init__(self, signature: Sequence[Any]) -> None:
        """Raise ValueError for types below 32 bits and unknown dimensions behind the first."""
        self._arguments = [_Argument(spec.dtype, tuple(spec.shape)) for spec in signature]
        for argument in self._arguments:
            if argument.dtype.size % WORD_BYTES or None in argument.shape[1:]:
                raise ValueError(
                    "expected arguments of 32-bit words, of which only the first dimension may be"
                    f" unknown, got {argument.dtype.name} {list(argument.shape)}"
                )
        self._open = [argument for argument in self._arguments if argument.open]

    @property
    def signature(self) -> Any:
        """The tf.TensorSpec of the packed vector."""
        length = len(self._open) + sum(argument.words_a_row for argument in self._arguments)
        return tf.TensorSpec([None if self._open else length], tf.int32)

    def pack(self, values: Sequence[Any]) -> NDArray[np.int32]:
        """The packed vector. Raises ValueError if the values do not fit the signature."""
        arrays = [np.asarray(value, order="C") for value in values]
        fits = len(arrays) == len(self._arguments) and all(map(_fits, arrays, self._arguments))
        if not fits:
            expected = ", ".join(
                f"{argument.dtype.name} {list(argument.shape)}" for argument in self._arguments
            )
            received = ", ".join(f"{array.dtype} {list(array.shape)}" for array in arrays)
            raise ValueError(f"expected the arguments {expected}, got {received}")
        rows = [
            len(array)
            for array, argument in zip(arrays, self._arguments, strict=True)
            if argument.open
        ]
        return np.concatenate(
            [np.array(rows, np.int32), *(array.reshape(-1).view(np.int32) for array in arrays)]
        )

    def unpack(self, packed: Any) -> list[Any]:
        """The arguments in the vector, in a graph."""
        unknown = iter(tf.unstack(packed[: len(self._open)], num=len(self._open)))
        rows = [next(unknown) if argument.open else 1 for argument in self._arguments]
        sizes = [
            argument.words_a_row * count
            for argument, count in zip(self._arguments, rows, strict=True)
        ]
        pieces = tf.split(packed, [len(self._open), *sizes], num=len(sizes) + 1)[1:]
        return [_restored(*piece) for piece in zip(pieces, self._arguments, rows, strict=True)]


def _fits(array: NDArray[Any], argument: _Argument) -> bool:
    shape = argument.shape
    same = array.ndim == len(shape) and array.shape[argument.open :] == shape[argument.open :]
    return bool(same and array.dtype == argument.dtype.as_numpy_dtype)


def _restored(packed: Any, argument: _Argument, rows: Any) -> Any:
    if argument.open:
        shape = tf.stack([rows, *argument.shape[1:]])
    else:
        shape = argument.shape
    if argument.dtype.size == WORD_BYTES:
        return tf.reshape(tf.bitcast(packed, argument.dtype), shape)
    return tf.reshape(
        tf.bitcast(tf.reshape(packed, [-1, argument.dtype.size // WORD_BYTES]), argument.dtype),
        shape,
    )


class AnswerAsShape:
    """Writes results of one type and shape as a shape, and reads them."""

    def __init__(self, dtype: Any, shape: tuple[int, ...]) -> None:
        """`shape` may be (-1,), a vector of any length."""
        self._dtype = dtype
        self._shape = shape

    @classmethod
    def for_result(cls, result: Any, longest: int | None = None) -> AnswerAsShape | None:
        """Return the form of `result`, in a graph, or None where it does not fit.

        What fits is one tensor of numbers and known shape, of at most 250 words of 32 bits, or a
        vector whose length the call alone knows and that has at most `longest` elements.
        """
        if not isinstance(result, tf.Tensor):
            return None
        shape = result.shape
        size = shape.num_elements()
        if longest is not None and size is None and shape.rank == 1:
            size = longest
            shape = (-1,)
        if size is None:
            return None
        plain = result.dtype.is_floating or result.dtype.is_integer
        word_count, rest = divmod(size * result.dtype.size, WORD_BYTES)
        fits = plain and result.dtype.size >= WORD_BYTES and not rest and word_count <= MOST_WORDS
        if fits:
            return cls(result.dtype.as_numpy_dtype, tuple(shape))
        return None

    @staticmethod
    def carrying(result: Any) -> Any:
        """The empty tensor that carries `result`, in a graph."""
        dimensions = tf.cast(tf.reshape(tf.bitcast(result, tf.uint32), [-1]), tf.int64)
        return tf.fill(
            tf.concat([tf.zeros([1], tf.int64), dimensions], 0), tf.constant(0, tf.int32)
        )

    def value_of(self, answer: Any) -> NDArray[Any]:
        """The result that `answer` carries."""
        numbers: NDArray[Any] = np.array(answer.shape.as_list()[1:], np.uint32).view(self._dtype)
        return numbers.reshape(self._shape)
