"""Examples that come one after the other, gathered into batches."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, cycle, repeat
from operator import length_hint
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.batch import Batch
from core.data.containers import plain
from core.data.dataset import CLASSIFICATION
from core.ground.errors import DataError

BATCH_BYTES = 4 * 2**20
"""Bytes of one batch, about."""


MOST_ROWS = 4096


INFINITE = -1
"""The cardinality of a data set of TensorFlow that never ends (tf.data.INFINITE_CARDINALITY)."""


def is_stream(x: Any) -> bool:
    """Return whether `x` is an iterator of examples, and no array of them."""
    if (
        x is None
        or hasattr(x, "__array__")
        or hasattr(x, "shape")
        or isinstance(x, str | bytes | list | tuple | Mapping)
    ):
        return False
    return hasattr(x, "__iter__") and not isinstance(x, memoryview | bytearray | range)


def text_of(values: NDArray[Any]) -> NDArray[Any]:
    """Text of pandas and of Python objects as text of numpy."""
    if (
        values.dtype.kind == "O"
        and values.ndim
        and all(isinstance(value, str) for value in values.flat)
    ):
        return values.astype(str)
    return values


def numbering(labels: Sequence[str]) -> Callable[[Any, str], int]:
    """Return what numbers a text class. Raises DataError for an unknown one."""
    numbers = {label: number for number, label in enumerate(labels)}

    def number(value: Any, where: str) -> int:
        if not isinstance(value, str) or value not in numbers:
            raise DataError(
                f"{where}: expected one of {', '.join(labels[:20])}, got {value!r:.60}; train on"
                " that class too, or correct it"
            )
        return numbers[value]

    return number


def numbers_of(
    values: NDArray[Any], number: Callable[[Any, str], int], where: str, first: int = 0
) -> NDArray[np.int32]:
    """The numbers of text classes, int32 in their shape; row `first` is the first."""
    numbers = np.empty(values.shape, np.int32)
    for index in np.ndindex(values.shape):
        position = ", ".join(map(str, (index[0] + first, *index[1:])))
        numbers[index] = number(str(values[index]), f"{where}[{position}]")
    return numbers


def never_ends(x: Any) -> bool:
    """Return whether an iterator says that it has no end.

    Some of itertools do, and data sets of TensorFlow behind repeat().
    """
    if isinstance(x, cycle | count) or (isinstance(x, repeat) and length_hint(x, -1) < 0):
        return True
    cardinality = getattr(x, "cardinality", None)
    return callable(cardinality) and int(cardinality()) == INFINITE


class ExampleStream:
    """Pairs and batches of one part, gathered into batches."""

    def __init__(
        self, part: str, task: str, number: Callable[[Any, str], int] | None, where: str
    ) -> None:
        self._part = part
        self._task = task
        self._number = number
        self._where = where
        self._pairs: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._bytes = self._row = 0

    def batches(self, stream: Iterable[Any]) -> Iterator[Batch]:
        """Yield the examples of the stream in batches. Raises DataError naming the row."""
        for item in stream:
            if isinstance(item, Batch):
                yield from self._gathered()
                self._row += len(item.x)
                y = self._batch_targets(text_of(plain(item.y, f"{self._where}: y_{self._part}")))
                yield replace(item, y=y, test=item.test or self._part == "test")
                continue
            self._add(item)
            if self._bytes >= BATCH_BYTES or len(self._pairs) >= MOST_ROWS:
                yield from self._gathered()
        yield from self._gathered()

    def _batch_targets(self, y: NDArray[Any]) -> NDArray[Any]:
        if y.dtype.kind != "U":
            return y
        return self._numbered(y, self._row - len(y))

    def _numbered(self, values: NDArray[Any], first: int) -> NDArray[np.int32]:
        name = f"{self._where}: y_{self._part}"
        if self._number is None:
            raise DataError(
                f"{name}[{first}]: expected a number, got {str(values.flat[0])!r:.60}; name all"
                " classes in labels, which an iterator does not say beforehand"
            )
        return numbers_of(values, self._number, name, first)

    def _add(self, item: Any) -> None:
        place = f"{self._part}[{self._row}]"
        if not isinstance(item, tuple | list) or len(item) != 2:
            if isinstance(item, tuple | list):
                actual = f"{len(item)} things"
            else:
                actual = type(item).__name__
            raise DataError(
                f"{self._where}: x_{place}: expected a pair (x, y) or a Batch, got {actual}; yield"
                " one of these"
            )
        x, y = (
            plain(value, f"{self._where}: {name}_{place}")
            for name, value in zip("xy", item, strict=True)
        )
        y = text_of(y)
        if y.ndim > 1 or (y.ndim and x.ndim > 1 and len(x) == len(y)):
            raise DataError(
                f"{self._where}: y_{place}: expected the target of one example, got shape"
                f" {y.shape}; yield one pair an example, or Batch(x, y) for many, also of one:"
                " Batch(x[None], y[None])"
            )
        if self._task == CLASSIFICATION and y.dtype.kind == "U":
            y = self._numbered(y[None], self._row)[0]
        if self._pairs and (x.shape, y.shape) != (self._pairs[0][0].shape, self._pairs[0][1].shape):
            before = self._pairs[0][0].shape, self._pairs[0][1].shape
            raise DataError(
                f"{self._where}: x_{place}: expected shapes {before[0]} and {before[1]} as in the"
                f" examples before, got {x.shape} and {y.shape}; give all examples one shape"
            )
        self._pairs.append((x, y))
        self._bytes += x.nbytes + y.nbytes
        self._row += 1

    def _gathered(self) -> Iterator[Batch]:
        if self._pairs:
            x, y = (np.stack(values) for values in zip(*self._pairs, strict=True))
            self._pairs = []
            self._bytes = 0
            yield Batch(x, y, test=self._part == "test")
