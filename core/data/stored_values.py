"""Numbers as the store has them, and what each of them must be."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.containers import plain
from core.data.dataset import (
    LARGEST_RANK,
    MULTILABEL,
    REGRESSION,
)
from core.data.recordings import LARGEST_INTEGER, NO_SUBJECT
from core.ground.errors import DataError

MOST_CLASSES = 65_536


_STORED = {
    "float64": "float32",
    "float128": "float32",
    "bool": "uint8",
    "uint32": "int64",
    "uint64": "int64",
}
"""Types for storing numbers that have no kernels on every worker, or are wider than any model
reads."""


def targets(
    y: NDArray[Any], where: str, first: int, task: str, labels: Sequence[str] | None
) -> NDArray[Any]:
    """Return targets as they are stored.

    int32 (n,) or (n, positions), uint8 (n, labels) or float32 (n, values).

    Row `first` is the first. Raises DataError for what are no targets of `task`.
    """
    if task == REGRESSION:
        with np.errstate(over="ignore"):
            narrow = y.astype(np.float32, copy=False)
        _refuse(
            y,
            ~np.isfinite(narrow),
            where,
            first,
            "a finite float32 number",
            "remove or repair the example",
        )
        if y.ndim == 1:
            return narrow[:, None]
        return narrow
    if task == MULTILABEL:
        expected = "0 or 1 for each label, (examples, labels), or for one label, (examples,)"
        if y.ndim == 1 and np.isin(y, (0, 1)).all():
            y = y[:, None]
        if y.ndim != 2:
            raise DataError(
                f"{where}: expected {expected}, got shape {y.shape}; give one column a label"
            )
        if labels is not None and len(labels) != y.shape[1]:
            raise DataError(
                f"{where}: expected {len(labels)} columns, one a label, got {y.shape[1]}; name each"
                " label"
            )
        _refuse(
            y, (y != 0) & (y != 1), where, first, "0 or 1", "give 1 to each label an example has"
        )
        return y.astype(np.uint8, copy=False)
    if not y.ndim or (y.ndim > 1 and y.shape[-1] <= 1):
        if y.ndim == 2:
            remedy = "give np.ravel(y)"
        else:
            remedy = "give y[..., 0]"
        raise DataError(
            f"{where}: expected one class an example, (examples,), or at each position, (examples,"
            f" positions), got shape {y.shape}; {remedy if y.ndim else 'give an array'}"
        )
    if y.dtype.kind == "f":
        _refuse(
            y,
            y != np.floor(y),
            where,
            first,
            "a class, a whole number",
            "say task regression if it is a quantity",
        )
    if labels is None:
        count = MOST_CLASSES
        hint = "number classes from 0"
    else:
        count = len(labels)
        hint = "number classes from 0 as in labels"
    _refuse(y, (y < 0) | (y >= count), where, first, f"a class from 0 to {count - 1}", hint)
    return y.astype(np.int32, copy=False)


def numbers(values: Any, where: str, first: int) -> NDArray[Any]:
    """Return the values as the store has them, little-endian and finite. Raises DataError."""
    array = plain(values, where)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{where}: expected numbers, got {array.dtype}; {_unfit(array)}")
    if not array.ndim or array.ndim - 1 > LARGEST_RANK or 0 in array.shape[1:]:
        raise DataError(
            f"{where}: expected (examples, ...), got shape {array.shape}; put one example in"
            " each row"
        )
    stored = np.dtype(_STORED.get(array.dtype.name, array.dtype.name))
    if array.dtype.name == "uint64":
        _refuse(
            array,
            array > np.iinfo(np.int64).max,
            where,
            first,
            "at most 2**63 - 1",
            "give smaller numbers",
        )
    with np.errstate(over="ignore"):
        narrow = array.astype(stored, copy=False)
    if stored.kind == "f":
        _refuse(
            array,
            ~np.isfinite(narrow),
            where,
            first,
            f"a finite {stored} number",
            "remove or repair the example",
        )
    return narrow


def _unfit(array: NDArray[Any]) -> str:
    if array.dtype.kind in "US":
        return "turn text into numbers first"
    if array.dtype.kind == "c":
        return "give real and imaginary parts as two channels"
    if array.dtype.kind in "mM":
        return "give seconds, or another number, instead of times"
    if array.dtype.kind == "O":
        return "give arrays of one shape and of numbers"
    return "convert it to float32"


def _refuse(
    values: NDArray[Any],
    wrong: NDArray[np.bool_],
    where: str,
    first: int,
    expected: str,
    remedy: str,
) -> None:
    if not wrong.any():
        return
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    position = ", ".join(map(str, (int(index[0]) + first, *map(int, index[1:]))))
    raise DataError(f"{where}[{position}]: expected {expected}, got {values[index]}; {remedy}")


def _column(values: NDArray[Any], count: int, where: str, first: int) -> None:
    if values.shape != (count,):
        if values.ndim == 1:
            rows = f"{first + len(values)}"
        else:
            rows = f"shape {values.shape}"
        raise DataError(
            f"{where}: expected {first + count} numbers, one for each training example, got {rows};"
            " give each its own"
        )


def groups_of(values: NDArray[Any], count: int, where: str, first: int) -> NDArray[np.int32]:
    """Return the groups of `count` examples. Raises DataError for what are none."""
    _column(values, count, where, first)
    if values.dtype.kind not in "iub":
        raise DataError(
            f"{where}: expected whole numbers, got {values.dtype}; number the groups from 0"
        )
    wrong = (values < NO_SUBJECT) | (values > LARGEST_INTEGER)
    _refuse(
        values,
        wrong,
        where,
        first,
        f"a group from 0 to {LARGEST_INTEGER}",
        "number the groups from 0",
    )
    return values.astype(np.int32)


def weights_of(values: NDArray[Any], count: int, where: str, first: int) -> NDArray[np.float32]:
    """Return the weights of `count` examples. Raises DataError for what are none."""
    _column(values, count, where, first)
    if values.dtype.kind not in "fiub":
        raise DataError(
            f"{where}: expected numbers, got {values.dtype}; give each training example a weight"
        )
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    wrong = ~(np.isfinite(narrow) & (narrow >= 0))
    _refuse(
        values,
        wrong,
        where,
        first,
        "a finite weight from 0",
        "give 1 to an example that counts once",
    )
    return narrow
