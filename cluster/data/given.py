"""Examples as a person gives them: arrays, lists or iterators, checked and cut into batches."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data.batch import Batch, PositionsLook, example_bytes, numbered, targets
from cluster.data.dataset import CLASSIFICATION, REGRESSION, TASKS
from cluster.errors import DataError

BATCH_BYTES = 4 * 2**20
"""Of one batch, about."""
MOST_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Data:
    """Examples for training and for the test.

    x_train, x_test: (examples, ...) numbers; y_train, y_test: their targets: classes as whole numbers from 0 or as
    text, (examples,) or one at each position, (examples, positions); 0 or 1 for each label, (examples, labels); or
    numbers, (examples,) or (examples, ...).
    Instead of an array, x may be an iterator of pairs (x, y), one example each, or of `Batch`; y is None then.
    groups: (examples,) of training, such as who was recorded: validation holds out whole ones. labels: names of the
    classes or labels. weights: (examples,) of training, how much each counts.
    """

    x_train: Any
    y_train: Any = None
    x_test: Any = None
    y_test: Any = None
    groups: Any = None
    labels: Any = None
    weights: Any = None


class Batches(Iterator[Batch]):
    """An iterator of batches that says how many rows there are in all: 0 where it does not know."""

    def __init__(self, batches: Iterator[Batch], rows: int) -> None:
        self._batches, self.rows = batches, rows

    def __next__(self) -> Batch:
        return next(self._batches)


def batches_of(
    data: Data | Mapping[str, Any], task: str = CLASSIFICATION, where: str = "data()"
) -> tuple[Iterator[Batch], tuple[str, ...] | None]:
    """Batches of these examples, and the names of their classes or labels.

    The names are None where only the end of an iterator shows how many there are: `write_examples` counts them then.
    Raises DataError beginning with `where` and the argument, also while the batches are drawn.
    """
    if task not in TASKS:
        raise DataError(f"{where}: task: expected {', '.join(TASKS)}, got {task!r:.60}")
    given = _data(data, where)
    labels = _labels(given.labels, where)
    if _is_stream(given.x_train) or _is_stream(given.x_test):
        return _streams(given, task, labels, where), labels
    x, y = _arrays(given, where)
    names, y = _targets(y, task, labels, where)
    beside = {name: None if (column := getattr(given, name)) is None else _column(column, len(x["train"]), name, where)
              for name in ("groups", "weights")}  # fmt: skip
    rows = {
        part: max(1, min(MOST_ROWS, BATCH_BYTES // (example_bytes(_array(values[:1], where)) + example_bytes(y[part]))))
        for part, values in x.items()
    }
    parts = (
        _cut(x[part], y[part], rows[part], beside if part == "train" else {}, f"{where}: x_{part}")
        for part in ("train", "test")
    )
    return Batches(chain.from_iterable(parts), sum(map(len, x.values()))), names


def _data(data: Any, where: str) -> Data:
    names = [field.name for field in fields(Data)]
    if isinstance(data, Mapping):
        for key in data:
            if key not in names:
                near = difflib.get_close_matches(str(key), names, n=1)
                raise DataError(
                    f"{where}: unknown key {key!r:.60}: {f'did you mean {near[0]}?' if near else 'expected '}"
                    f"{'' if near else ', '.join(names)}"
                )
        data = Data(**{"x_train": None, **data})
    if not isinstance(data, Data):
        raise DataError(
            f"{where}: expected Data(x_train, y_train, x_test, y_test) or a dict with these keys, got "
            f"{type(data).__name__}; return one"
        )
    for part in ("train", "test"):
        x, y = (getattr(data, f"{name}_{part}") for name in "xy")
        if x is None and not (part == "test" and _is_stream(data.x_train)):
            raise DataError(f"{where}: x_{part} is missing; give the examples of the {part} set")
        if x is not None and y is None and not _is_stream(x):
            raise DataError(f"{where}: y_{part} is missing; give each example of x_{part} its target")
        if y is not None and _is_stream(x):
            raise DataError(f"{where}: y_{part}: expected none, because x_{part} is an iterator of pairs; leave it out")
    return data


def _labels(given: Any, where: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise DataError(f"{where}: labels: expected a list of names, got {given!r:.60}")
    labels = tuple(map(str, given))
    if not labels or len(set(labels)) != len(labels):
        raise DataError(
            f"{where}: labels: expected different names, one a class, got {', '.join(labels)[:80] or 'none'}"
        )
    return labels


def _is_stream(x: Any) -> bool:
    if (
        x is None
        or hasattr(x, "__array__")
        or hasattr(x, "shape")
        or isinstance(x, str | bytes | list | tuple | Mapping)
    ):
        return False
    return hasattr(x, "__iter__") and not isinstance(x, memoryview | bytearray | range)


def _array(values: Any, where: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as problem:
        said = "rows of unequal length" if "inhomogeneous" in str(problem) else f"{type(values).__name__} ({problem})"
        raise DataError(f"{where}: expected an array, got {said}; give all examples one shape") from None


def _sliced(values: Any, where: str) -> Any:
    """What can be cut by rows without being read whole: arrays, files of arrays; all else as an array."""
    if isinstance(values, np.ndarray) or (hasattr(values, "chunks") and hasattr(values, "shape")):
        return values
    return _array(values, where)


def _arrays(given: Data, where: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    x, y = {}, {}
    for part in ("train", "test"):
        name = f"{where}: x_{part}"
        x[part] = _sliced(getattr(given, f"x_{part}"), name)
        y[part] = _array(getattr(given, f"y_{part}"), f"{where}: y_{part}")
        if not x[part].shape:
            raise DataError(f"{name}: expected (examples, ...), got one {_array(x[part], name).dtype}; give an array")
        if not len(x[part]):
            raise DataError(f"{name}: expected at least one example, got none; add some")
        if not y[part].shape or len(y[part]) != len(x[part]):
            got = len(y[part]) if y[part].shape else "one value"
            raise DataError(
                f"{where}: y_{part}: expected {len(x[part])} targets, one for each example of x_{part}, got {got}; "
                f"give each example its target"
            )
    expected, got = x["train"].shape[1:], x["test"].shape[1:]
    if expected != got:
        raise DataError(
            f"{where}: x_test: expected examples of shape {expected} as in x_train, got {got}; give one shape"
        )
    return x, y


def _targets(
    y: dict[str, NDArray[Any]], task: str, labels: tuple[str, ...] | None, where: str
) -> tuple[tuple[str, ...] | None, dict[str, NDArray[Any]]]:
    """Names of classes or labels, and targets as numbers."""
    y = {part: _text(values) for part, values in y.items()}
    if task == CLASSIFICATION and y["train"].dtype.kind == "U":
        known = labels or tuple(map(str, np.unique(y["train"])))
        return known, {part: _numbers(values, _numbering(known), f"{where}: y_{part}") for part, values in y.items()}
    for part, values in y.items():
        if values.dtype.kind not in "fiub":
            raise DataError(
                f"{where}: y_{part}: expected numbers, got {values.dtype}; give numbers, or one text an example"
            )
        y[part] = targets(values, f"{where}: y_{part}", 0, task, labels)
    if task == CLASSIFICATION:
        PositionsLook().take(y["train"]).refuse(f"{where}: y_train", labels)
    if labels is not None or task == REGRESSION:
        return labels or (), y
    if task == CLASSIFICATION:
        return numbered(np.bincount(y["train"].reshape(-1)), np.bincount(y["test"].reshape(-1)), where), y
    return tuple(map(str, range(y["train"].shape[1]))), y


def _text(values: NDArray[Any]) -> NDArray[Any]:
    """Text of pandas and of Python objects as text of numpy."""
    if values.dtype.kind == "O" and values.ndim and all(isinstance(value, str) for value in values.flat):
        return values.astype(str)
    return values


def _numbering(labels: Sequence[str]) -> Callable[[Any, str], int]:
    numbers = {label: number for number, label in enumerate(labels)}

    def number(value: Any, where: str) -> int:
        if not isinstance(value, str) or value not in numbers:
            raise DataError(
                f"{where}: expected one of {', '.join(labels[:20])}, got {value!r:.60}; train on that class too, or "
                f"correct it"
            )
        return numbers[value]

    return number


def _numbers(values: NDArray[Any], number: Callable[[Any, str], int], where: str, first: int = 0) -> NDArray[np.int32]:
    """The numbers of text classes, int32 in their shape; row `first` is the first."""
    found = np.empty(values.shape, np.int32)
    for index in np.ndindex(values.shape):
        shown = ", ".join(map(str, (index[0] + first, *index[1:])))
        found[index] = number(str(values[index]), f"{where}[{shown}]")
    return found


def _column(values: Any, rows: int, name: str, where: str) -> NDArray[Any]:
    column = _array(values, f"{where}: {name}")
    if column.shape != (rows,):
        raise DataError(
            f"{where}: {name}: expected {rows} numbers, one for each example of x_train, got "
            f"{len(column) if column.ndim == 1 else f'shape {column.shape}'}; give each its own"
        )
    return column


def _cut(x: Any, y: NDArray[Any], rows: int, beside: Mapping[str, Any], where: str) -> Iterator[Batch]:
    for start in range(0, len(x), rows):
        cut = slice(start, start + rows)
        columns = {name: values[cut] for name, values in beside.items() if values is not None}
        yield Batch(_array(x[cut], where), y[cut], **columns, test="x_test" in where)


def _streams(given: Data, task: str, labels: tuple[str, ...] | None, where: str) -> Iterator[Batch]:
    for name in ("groups", "weights"):
        if getattr(given, name) is not None:
            raise DataError(f"{where}: {name}: expected none, because x is an iterator; yield Batch(x, y, {name}=...)")
    for part, x in (("train", given.x_train), ("test", given.x_test)):
        if x is not None and not _is_stream(x):
            raise DataError(f"{where}: x_{part}: expected an iterator as the other part is one; give both the same way")
    number = _numbering(labels) if labels else None

    def batches() -> Iterator[Batch]:
        for part, stream in (("train", given.x_train), ("test", given.x_test)):
            if stream is not None:
                yield from _Stream(part, task, number, where).batches(stream)

    return batches()


class _Stream:
    """Pairs and batches of one part, gathered into batches."""

    def __init__(self, part: str, task: str, number: Callable[[Any, str], int] | None, where: str) -> None:
        self._part, self._task, self._number, self._where = part, task, number, where
        self._pairs: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._bytes = self._row = 0

    def batches(self, stream: Iterable[Any]) -> Iterator[Batch]:
        for item in stream:
            if isinstance(item, Batch):
                yield from self._gathered()
                self._row += len(item.x)
                y = self._batch_targets(_text(np.asarray(item.y)))
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
                f"{name}[{first}]: expected a number, got {str(values.flat[0])!r:.60}; name all classes in labels, "
                f"which an iterator does not say beforehand"
            )
        return _numbers(values, self._number, name, first)

    def _add(self, item: Any) -> None:
        place = f"{self._part}[{self._row}]"
        if not isinstance(item, tuple | list) or len(item) != 2:
            got = f"{len(item)} things" if isinstance(item, tuple | list) else type(item).__name__
            raise DataError(
                f"{self._where}: x_{place}: expected a pair (x, y) or a Batch, got {got}; yield one of these"
            )
        x, y = (_array(value, f"{self._where}: {name}_{place}") for name, value in zip("xy", item, strict=True))
        y = _text(y)
        if y.ndim > 1 or (y.ndim and x.ndim > 1 and len(x) == len(y)):
            raise DataError(
                f"{self._where}: y_{place}: expected the target of one example, got shape {y.shape}; yield one pair "
                f"an example, or Batch(x, y) for many, also of one: Batch(x[None], y[None])"
            )
        if self._task == CLASSIFICATION and y.dtype.kind == "U":
            y = self._numbered(y[None], self._row)[0]
        if self._pairs and (x.shape, y.shape) != (self._pairs[0][0].shape, self._pairs[0][1].shape):
            before = self._pairs[0][0].shape, self._pairs[0][1].shape
            raise DataError(
                f"{self._where}: x_{place}: expected shapes {before[0]} and {before[1]} as in the examples before, "
                f"got {x.shape} and {y.shape}; give all examples one shape"
            )
        self._pairs.append((x, y))
        self._bytes += x.nbytes + y.nbytes
        self._row += 1

    def _gathered(self) -> Iterator[Batch]:
        if self._pairs:
            x, y = (np.stack(values) for values in zip(*self._pairs, strict=True))
            self._pairs, self._bytes = [], 0
            yield Batch(x, y, test=self._part == "test")
