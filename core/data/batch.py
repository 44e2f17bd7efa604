"""Batches of examples on their way into the store: what each must be, and how many may come.

An iterator may never end: it is bounded by bytes and by the disk, and reports while it is written.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, cycle, repeat
from operator import length_hint
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.arrays import AnyArray, Integers, Singles
from core.data.dataset import CLASSIFICATION, MULTILABEL, REGRESSION, TASKS
from core.data.recordings import Recordings, one_class
from core.data.signals import UNKNOWN, Signals
from core.data.split import NOT_SAID, HeldOut
from core.data.stored_values import beside_of, numbers, refuse_at, targets
from core.ground.errors import DataError

ROWS_AT_ONCE = 1024
"""Windows of motion that are written at a time."""
BATCH_BYTES = 4 * 2**20
"""Bytes of one batch of examples, about."""
MOST_ROWS = 4096
INFINITE = -1
"""The cardinality of a data set of TensorFlow that never ends (tf.data.INFINITE_CARDINALITY)."""
_MOST_LOST = 256
"""Steps of float32 that numbers have to span, or rounding is what is left of them."""
_REMEDY = "differ by less than float32 numbers of that size can: subtract the least from all"


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples of one part, for training or for the test.

    x: (n, ...) inputs; y: (n, ...) targets, in a classification (n,) or one class at each position,
    (n, positions); groups: (n,) whole numbers from 0, such as who was recorded, -1 where unknown;
    weights: (n,) how much each example counts in training.
    """

    x: AnyArray
    y: AnyArray
    groups: NDArray[np.integer] | None = None
    weights: Singles | None = None
    test: bool = False


class Batches(Iterator[Batch]):
    """An iterator of batches that says how many rows there are in all: 0 where it does not know."""

    def __init__(self, batches: Iterator[Batch], rows: int = 0) -> None:
        self._batches = batches
        self.rows = rows

    def __next__(self) -> Batch:
        return next(self._batches)


@dataclass(frozen=True, eq=False)
class Examples:
    """What a reader of other things than windows returns: batches, and what they are for.

    The labels are None where the numbers of the classes themselves say how many there are.
    """

    batches: Iterator[Batch]
    task: str
    labels: Sequence[str] | None
    standardized: bool
    held_out: HeldOut = NOT_SAID
    signals: Signals = UNKNOWN


def cut_batches(
    columns: Mapping[str, Any], rows: int = ROWS_AT_ONCE, *, test: bool = False
) -> Iterator[Batch]:
    """Yield batches of some rows of what Batch has, by name, such as arrays in files."""
    for start in range(0, len(columns["x"]), rows):
        cut = {name: values[start : start + rows] for name, values in columns.items()}
        yield Batch(**cut, test=test)


def examples_of(recordings: Recordings) -> Examples:
    """Return windows of motion as examples, whose channels the engine standardizes."""
    columns = {
        "x": recordings.windows,
        "y": recordings.classes,
        "groups": recordings.subjects,
    }
    train = recordings.train_windows
    batches = (
        cut_batches({name: values[rows] for name, values in columns.items()}, test=is_test)
        for rows, is_test in ((slice(train), False), (slice(train, None), True))
    )
    return Examples(
        Batches(chain.from_iterable(batches), len(recordings.windows)),
        CLASSIFICATION,
        recordings.labels,
        standardized=True,
        signals=recordings.signals,
    )


class ClassNumbers:
    """The places of classes in their order; they are sorted once."""

    def __init__(self, classes: AnyArray) -> None:
        self._order = np.argsort(classes)
        self._sorted = classes[self._order]
        self._expected = f"one of {', '.join(map(str, classes[:20]))}"

    def of(
        self,
        values: AnyArray,
        where: str,
        first: int = 0,
        remedy: str = "train on that class too, or correct it",
    ) -> Integers:
        """Return the place of each value, int32 in its shape; row `first` is the first.

        Raises DataError for another value.
        """
        places = np.searchsorted(self._sorted, values)
        absent = places == np.searchsorted(self._sorted, values, side="right")
        refuse_at(values, absent, where, first, self._expected, remedy)
        numbers: Integers = self._order[places].astype(np.int32)
        return numbers


class PositionsLook:
    """Finds out whether classes at positions are one-hot classes or labels by mistake.

    Classes at several positions have shape (n, ..., positions).
    """

    def __init__(self) -> None:
        self._shape: tuple[int, ...] | None = None
        self._binary = self._one_hot = True

    def take(self, y: AnyArray) -> "PositionsLook":
        """Look at some more training targets.

        Targets with one class an example need no look.
        """
        if y.ndim > 1 and self._binary:
            self._shape = y.shape[1:]
            self._binary = bool(((y == 0) | (y == 1)).all())
            self._one_hot = self._one_hot and self._binary and bool((y.sum(-1) == 1).all())
        return self

    def refuse(self, where: str, labels: Sequence[str] | None) -> None:
        """Raise DataError where all targets were 0 and 1 and no names of the classes explain it."""
        if self._shape is None or not self._binary:
            return
        if self._one_hot and (labels is None or len(labels) == self._shape[-1]):
            remedy = f"one-hot classes: give y.argmax(axis={len(self._shape)})"
        elif labels is None:
            remedy = (
                "say task multilabel if an example has any number of labels, or name both classes"
                " in labels if each position has one"
            )
        else:
            return
        raise DataError(
            f"{where}: expected one class an example, (examples,), or at each position, (examples,"
            f" positions), got 0 and 1 of shape (examples, {', '.join(map(str, self._shape))});"
            f" {remedy}"
        )


class BatchValidator:
    """Lets batches through in the dtypes of the store, or refuses them.

    All must have one shape, one dtype, finite numbers, and targets of the task.

    Raises DataError: `where`, the part and the row, what was expected, what came, what to do.
    """

    def __init__(self, where: str, task: str, labels: Sequence[str] | None) -> None:
        """`labels` are None where the numbers of the classes themselves say how many there are."""
        if task not in TASKS:
            raise DataError(f"{where}: task: expected {', '.join(TASKS)}, got {task!r:.60}")
        self._where = where
        self._task = task
        if labels is None:
            self._labels = None
        else:
            self._labels = tuple(labels)
        self._like: dict[str, AnyArray] = {}
        self._rows = {False: 0, True: 0}
        self._counts = {False: np.zeros(0, np.int64), True: np.zeros(0, np.int64)}
        """Examples of each class in training and test."""
        self._positions = PositionsLook()
        self._span: tuple[AnyArray, AnyArray] | None = None
        """Least and most by the last axis, of numbers that become float32."""
        self._weight = 0.0
        self.weighted = False
        """Whether any training example had a weight."""

    def passed(self, batch: Batch) -> Batch:
        """The batch in the dtypes of the store."""
        if batch.test:
            part = "test"
        else:
            part = "train"
        first = self._rows[batch.test]
        if not batch.test:
            self._look_at_span(batch.x)
        x, y = (
            numbers(values, f"{self._where}: {name}_{part}", first)
            for name, values in (("x", batch.x), ("y", batch.y))
        )
        if len(x) != len(y):
            raise DataError(
                f"{self._where}: y_{part}: expected {first + len(x)} targets, one for each example"
                f" of x_{part}, got {first + len(y)}; give each example its target"
            )
        y = targets(y, f"{self._where}: y_{part}", first, self._task, self._labels)
        for name, values in (("x", x), ("y", y)):
            self._same(name, values, part, first)
        if self._task == CLASSIFICATION:
            if not batch.test:
                self._positions.take(y)
            before = self._counts[batch.test]
            counts = np.bincount(y.reshape(-1), minlength=len(before))
            counts[: len(before)] += before
            self._counts[batch.test] = counts
        self._rows[batch.test] += len(x)
        groups, weights = (
            beside_of(name, getattr(batch, name), len(x), f"{self._where}: {name}", first)
            for name in ("groups", "weights")
        )
        if not batch.test:
            self.weighted |= batch.weights is not None
            self._weight += float(weights.sum())
        return Batch(x, y, groups, weights, test=batch.test)

    def _look_at_span(self, inputs: Any) -> None:
        if not isinstance(inputs, np.ndarray) or inputs.dtype != np.float64 or not inputs.size:
            return
        rows = inputs.reshape(-1, inputs.shape[-1]) if inputs.ndim > 1 else inputs[:, None]
        least, most = self._span or (rows[0], rows[0])
        if least.shape == rows.shape[1:]:
            self._span = np.minimum(least, rows.min(0)), np.maximum(most, rows.max(0))

    def _refuse_lost(self) -> None:
        """Raise DataError where float32 loses the differences between numbers."""
        if self._span is None:
            return
        least, most = self._span
        with np.errstate(over="ignore", invalid="ignore"):
            step = np.spacing(np.maximum(np.abs(least), np.abs(most)).astype(np.float32))
            lost = (least < most) & (most - least < _MOST_LOST * step.astype(np.float64))
        for place in np.flatnonzero(lost):
            raise DataError(
                f"{self._where}: x_train[..., {place}]: {least[place]:.17g} to {most[place]:.17g}"
                f" {_REMEDY}"
            )

    def labels(self) -> tuple[str, ...]:
        """Names of the outputs, when all batches have passed.

        Raises DataError for an empty part or class.
        """
        for test, part in ((False, "train"), (True, "test")):
            if not self._rows[test]:
                raise DataError(
                    f"{self._where}: x_{part}: expected at least one example, got none; add some"
                )
        self._refuse_lost()
        if self.weighted and not self._weight:
            raise DataError(
                f"{self._where}: weights: all are 0: a training would learn nothing; raise some"
            )
        if self._task == CLASSIFICATION:
            self._positions.refuse(f"{self._where}: y_train", self._labels)
            self._refuse_absent()
        if self._labels is not None:
            return self._labels
        if self._task == REGRESSION:
            return ()
        if self._task == MULTILABEL:
            return tuple(map(str, range(self._like["y"].shape[1])))
        return tuple(map(str, range(max(map(len, self._counts.values())))))

    def _refuse_absent(self) -> None:
        """Raise DataError for one class alone, and for a number that is never trained."""
        trained = np.flatnonzero(self._counts[False]).tolist()
        count = max(map(len, self._counts.values()))
        if len(trained) < 2:
            names = self._labels or tuple(map(str, range(count)))
            raise DataError(
                f"{self._where}: y_train: {one_class([names[place] for place in trained])}"
            )
        absent = sorted(set(range(count)).difference(trained))
        if absent and self._labels is None:
            raise DataError(
                f"{self._where}: y_train: expected classes numbered from 0 without a gap, got no"
                f" example of class {absent[0]} of {count}; number them so, train on that class"
                " too, or name all classes in labels"
            )

    def _same(self, name: str, values: AnyArray, part: str, first: int) -> None:
        like = self._like.setdefault(name, values[:1])
        for attribute, expected, actual in (
            ("shape", like.shape[1:], values.shape[1:]),
            ("dtype", like.dtype.name, values.dtype.name),
        ):
            if expected != actual:
                self._positions.refuse(f"{self._where}: y_train", self._labels)
                raise DataError(
                    f"{self._where}: {name}_{part}[{first}]: expected {attribute} {expected} as in"
                    f" the examples before, got {actual}; give all examples one shape and dtype"
                )


def example_bytes(x: AnyArray) -> int:
    """Bytes of one example of an array (n, ...)."""
    return max(1, math.prod(x.shape[1:]) * x.dtype.itemsize)


GIGABYTE = 10**9
SAY_SECONDS = 10.0


def never_ends(x: Any) -> bool:
    """Return whether an iterator says that it has no end.

    Some of itertools do, and data sets of TensorFlow behind repeat().
    """
    if isinstance(x, cycle | count) or (isinstance(x, repeat) and length_hint(x, -1) < 0):
        return True
    cardinality = getattr(x, "cardinality", None)
    return callable(cardinality) and int(cardinality()) == INFINITE


def bounded(
    batches: Iterator[Batch], most_bytes: int, key: str, where: str, say: Callable[[str], None]
) -> Iterator[Batch]:
    """Yield the batches of an iterator, at most so many bytes in all, which `key` sets.

    Every ten seconds a line is said. Raises DataError beginning with `where`.
    """
    rows = size = 0
    reported_at = time.monotonic()
    for batch in batches:
        yield batch
        rows += len(batch.x)
        size += batch.x.nbytes + batch.y.nbytes
        brought = f"{rows:,} examples, {size / GIGABYTE:.2f} GB"
        if size > most_bytes:
            raise DataError(
                f"{where}: brings more than {most_bytes / GIGABYTE:g} GB ({brought}): expected an"
                " iterator that ends after each example came once: leave out `while True` and"
                f" repeat(), or set {key} to more gigabytes"
            )
        if time.monotonic() - reported_at >= SAY_SECONDS:
            reported_at = time.monotonic()
            say(f"data: {brought} are written, and the iterator has more")
