"""Batches of examples on their way into the store, and what each of them must be."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data.dataset import CLASSIFICATION, LARGEST_RANK, MULTILABEL, NOT_SAID, REGRESSION, TASKS, HeldOut
from cluster.data.recordings import NO_SUBJECT
from cluster.data.table import LARGEST_INTEGER
from cluster.errors import DataError

MOST_CLASSES = 65_536
_STORED = {"float64": "float32", "float128": "float32", "bool": "uint8", "uint32": "int64", "uint64": "int64"}
"""What numbers are stored as that have no kernels on every worker, or are wider than any model reads."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples of one part, for training or for the test.

    x: (n, ...) inputs; y: (n, ...) targets, in a classification (n,) or one class at each position, (n, positions);
    groups: (n,) whole numbers from 0, such as who was recorded, -1 where unknown; weights: (n,) how much each example
    counts in training.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    groups: NDArray[np.integer] | None = None
    weights: NDArray[np.float32] | None = None
    test: bool = False


@dataclass(frozen=True, eq=False)
class Examples:
    """What a reader of other things than windows returns: batches, and what they are for.

    The labels are None where the numbers of the classes themselves say how many there are.
    """

    batches: Iterator[Batch]
    task: str
    labels: tuple[str, ...] | None
    standardized: bool
    held_out: HeldOut = NOT_SAID


class PositionsLook:
    """Whether classes at several positions, (n, ..., positions), are rather one-hot classes or labels by mistake."""

    def __init__(self) -> None:
        self._shape: tuple[int, ...] | None = None
        self._binary = self._one_hot = True

    def take(self, y: NDArray[Any]) -> "PositionsLook":
        """Look at some training targets too; at those with one class an example there is nothing to see."""
        if y.ndim > 1 and self._binary:
            self._shape = y.shape[1:]
            self._binary = bool(((y == 0) | (y == 1)).all())
            self._one_hot = self._one_hot and self._binary and bool((y.sum(-1) == 1).all())
        return self

    def refuse(self, where: str, labels: Sequence[str] | None) -> None:
        """Raises DataError where all targets were 0 and 1, and the names of the classes do not say what they are."""
        if self._shape is None or not self._binary:
            return
        if self._one_hot and (labels is None or len(labels) == self._shape[-1]):
            remedy = f"one-hot classes: give y.argmax(axis={len(self._shape)})"
        elif labels is None:
            remedy = (
                "say task multilabel if an example has any number of labels, or name both classes in labels if each "
                "position has one"
            )
        else:
            return
        raise DataError(
            f"{where}: expected one class an example, (examples,), or at each position, (examples, positions), got 0 "
            f"and 1 of shape (examples, {', '.join(map(str, self._shape))}); {remedy}"
        )


class Gate:
    """Lets batches through as they are stored: one shape, one dtype, finite numbers, targets of the task.

    Raises DataError: `where`, the part and the row, what was expected, what came, what to do.
    """

    def __init__(self, where: str, task: str, labels: Sequence[str] | None) -> None:
        """`labels` are None where the numbers of the classes themselves say how many there are."""
        if task not in TASKS:
            raise DataError(f"{where}: task: expected {', '.join(TASKS)}, got {task!r:.60}")
        self._where, self._task = where, task
        self._labels = None if labels is None else tuple(labels)
        self._like: dict[str, NDArray[Any]] = {}
        self._rows = {False: 0, True: 0}
        self._classes: dict[bool, NDArray[np.int64]] = {}
        self._positions = PositionsLook()
        self.weighted = False
        """Whether any training example had a weight."""

    def passed(self, batch: Batch) -> Batch:
        """The batch in the dtypes of the store."""
        part, first = "test" if batch.test else "train", self._rows[batch.test]
        x, y = (_numbers(values, f"{self._where}: {name}_{part}", first)
                for name, values in (("x", batch.x), ("y", batch.y)))  # fmt: skip
        if len(x) != len(y):
            raise DataError(
                f"{self._where}: y_{part}: expected {first + len(x)} targets, one for each example of x_{part}, got "
                f"{first + len(y)}; give each example its target"
            )
        y = targets(y, f"{self._where}: y_{part}", first, self._task, self._labels)
        for name, values in (("x", x), ("y", y)):
            self._same(name, values, part, first)
        if self._task == CLASSIFICATION:
            if not batch.test:
                self._positions.take(y)
            counts = np.bincount(y.reshape(-1))
            before = self._classes.get(batch.test, counts[:0])
            self._classes[batch.test] = _longer(before, len(counts)) + _longer(counts, len(before))
        self._rows[batch.test] += len(x)
        self.weighted |= batch.weights is not None and not batch.test
        return Batch(x, y, *self._beside(batch, len(x), part, first), test=batch.test)

    def labels(self) -> tuple[str, ...]:
        """Names of the outputs, when all batches have passed. Raises DataError for an empty part or class."""
        for test, part in ((False, "train"), (True, "test")):
            if not self._rows[test]:
                raise DataError(f"{self._where}: x_{part}: expected at least one example, got none; add some")
        if self._task == CLASSIFICATION:
            self._positions.refuse(f"{self._where}: y_train", self._labels)
        if self._labels is not None:
            return self._labels
        if self._task == REGRESSION:
            return ()
        if self._task == MULTILABEL:
            return tuple(map(str, range(self._like["y"].shape[1])))
        return numbered(self._classes[False], self._classes[True], self._where)

    def _same(self, name: str, values: NDArray[Any], part: str, first: int) -> None:
        like = self._like.setdefault(name, values[:1])
        for what, expected, got in (
            ("shape", like.shape[1:], values.shape[1:]), ("dtype", like.dtype.name, values.dtype.name),
        ):  # fmt: skip
            if expected != got:
                raise DataError(
                    f"{self._where}: {name}_{part}[{first}]: expected {what} {expected} as in the examples before, "
                    f"got {got}; give all examples one shape and dtype"
                )

    def _beside(self, batch: Batch, count: int, part: str, first: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        groups, weights = np.full(count, NO_SUBJECT, np.int32), np.ones(count, np.float32)
        if batch.groups is not None:
            groups = _groups(np.asarray(batch.groups), count, f"{self._where}: groups", first)
        if batch.weights is not None:
            weights = _weights(np.asarray(batch.weights), count, f"{self._where}: weights", first)
        return groups, weights


def numbered(train: NDArray[np.integer], test: NDArray[np.integer], where: str) -> tuple[str, ...]:
    """Classes 0 to the largest one, from counts of both parts, (classes,). Raises DataError for one never trained."""
    counts = _longer(train, len(test))
    absent = np.flatnonzero(counts == 0)
    if absent.size:
        raise DataError(
            f"{where}: y_train: expected classes numbered from 0 without a gap, got no example of class {absent[0]} "
            f"of {len(counts)}; number them so, train on that class too, or name all classes in labels"
        )
    return tuple(map(str, range(len(counts))))


def targets(y: NDArray[Any], where: str, first: int, task: str, labels: Sequence[str] | None) -> NDArray[Any]:
    """Targets as they are stored: int32 (n,) or (n, positions), uint8 (n, labels) or float32 (n, values).

    Row `first` is the first. Raises DataError for what are no targets of `task`.
    """
    if task == REGRESSION:
        with np.errstate(over="ignore"):
            narrow = y.astype(np.float32, copy=False)
        _refuse(y, ~np.isfinite(narrow), where, first, "a finite float32 number", "remove or repair the example")
        return narrow[:, None] if y.ndim == 1 else narrow
    if task == MULTILABEL:
        expected = "0 or 1 for each label, (examples, labels)"
        if y.ndim != 2:
            raise DataError(f"{where}: expected {expected}, got shape {y.shape}; give one column a label")
        if labels is not None and len(labels) != y.shape[1]:
            raise DataError(f"{where}: expected {len(labels)} columns, one a label, got {y.shape[1]}; name each label")
        _refuse(y, (y != 0) & (y != 1), where, first, "0 or 1", "give 1 to each label an example has")
        return y.astype(np.uint8, copy=False)
    if not y.ndim or (y.ndim > 1 and y.shape[-1] <= 1):
        remedy = "give y[:, 0]" if y.ndim == 2 else "give y[..., 0]"
        raise DataError(
            f"{where}: expected one class an example, (examples,), or at each position, (examples, positions), got "
            f"shape {y.shape}; {remedy if y.ndim else 'give an array'}"
        )
    if y.dtype.kind == "f":
        _refuse(y, y != np.floor(y), where, first, "a class, a whole number", "say task regression if it is a quantity")
    count = MOST_CLASSES if labels is None else len(labels)
    hint = "number classes from 0" if labels is None else "number classes from 0 as in labels"
    _refuse(y, (y < 0) | (y >= count), where, first, f"a class from 0 to {count - 1}", hint)
    return y.astype(np.int32, copy=False)


def _numbers(values: Any, where: str, first: int) -> NDArray[Any]:
    """As the store has them, little-endian and finite."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{where}: expected numbers, got {array.dtype}; {_unfit(array)}")
    if not array.ndim or array.ndim - 1 > LARGEST_RANK or 0 in array.shape[1:]:
        raise DataError(f"{where}: expected (examples, ...), got shape {array.shape}; put one example in each row")
    stored = np.dtype(_STORED.get(array.dtype.name, array.dtype.name))
    if array.dtype.name == "uint64":
        _refuse(array, array > np.iinfo(np.int64).max, where, first, "at most 2**63 - 1", "give smaller numbers")
    with np.errstate(over="ignore"):
        narrow = array.astype(stored, copy=False)
    if stored.kind == "f":
        _refuse(array, ~np.isfinite(narrow), where, first, f"a finite {stored} number", "remove or repair the example")
    return narrow


def _unfit(array: NDArray[Any]) -> str:
    if array.dtype.kind in "US":
        return "turn text into numbers first"
    return "give arrays of one shape and of numbers" if array.dtype.kind == "O" else "convert it to float32"


def _refuse(values: NDArray[Any], wrong: NDArray[np.bool_], where: str, first: int, expected: str, remedy: str) -> None:
    if not wrong.any():
        return
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    shown = ", ".join(map(str, (int(index[0]) + first, *map(int, index[1:]))))
    raise DataError(f"{where}[{shown}]: expected {expected}, got {values[index]}; {remedy}")


def _column(values: NDArray[Any], count: int, where: str, first: int) -> None:
    if values.shape != (count,):
        rows = f"{first + len(values)}" if values.ndim == 1 else f"shape {values.shape}"
        raise DataError(
            f"{where}: expected {first + count} numbers, one for each training example, got {rows}; give each its own"
        )


def _groups(values: NDArray[Any], count: int, where: str, first: int) -> NDArray[np.int32]:
    _column(values, count, where, first)
    if values.dtype.kind not in "iub":
        raise DataError(f"{where}: expected whole numbers, got {values.dtype}; number the groups from 0")
    wrong = (values < NO_SUBJECT) | (values > LARGEST_INTEGER)
    _refuse(values, wrong, where, first, f"a group from 0 to {LARGEST_INTEGER}", "number the groups from 0")
    return values.astype(np.int32)


def _weights(values: NDArray[Any], count: int, where: str, first: int) -> NDArray[np.float32]:
    _column(values, count, where, first)
    if values.dtype.kind not in "fiub":
        raise DataError(f"{where}: expected numbers, got {values.dtype}; give each training example a weight")
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    wrong = ~(np.isfinite(narrow) & (narrow >= 0))
    _refuse(values, wrong, where, first, "a finite weight from 0", "give 1 to an example that counts once")
    return narrow


def _longer(counts: NDArray[Any], length: int) -> NDArray[Any]:
    return np.pad(counts, (0, max(0, length - len(counts))))


def example_bytes(x: NDArray[Any]) -> int:
    """Bytes of one example of an array (n, ...)."""
    return max(1, math.prod(x.shape[1:]) * x.dtype.itemsize)
