"""Examples as a person gives them: arrays, lists or iterators, checked and cut into batches."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.batch import (
    BATCH_BYTES,
    MOST_ROWS,
    Batch,
    Batches,
    PositionsLook,
    example_bytes,
    never_ends,
    numbered,
)
from core.data.dataset import CLASSIFICATION, REGRESSION, TASKS
from core.data.recordings import numbering, numbers_of, refuse_alike, refuse_missing
from core.data.stored_values import (
    plain,
    refuse_more,
    refuse_other_columns,
    refuse_other_rows,
    targets,
)
from core.ground.errors import DataError


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


@dataclass(frozen=True, eq=False)
class Data:
    """Examples for training and for the test.

    x_train, x_test: (examples, ...) numbers; y_train, y_test: their targets: classes as whole
    numbers from 0 or as text, (examples,) or one at each position, (examples, positions); 0 or 1
    for each label, (examples, labels); or numbers, (examples,) or (examples, ...). Instead of an
    array, x may be an iterator of pairs (x, y), one example each, or of `Batch`; y is None then.
    groups: (examples,) of training, such as who was recorded: validation holds out whole ones.
    labels: names of the classes or labels. weights: (examples,) of training, how much each counts.
    """

    x_train: Any
    y_train: Any = None
    x_test: Any = None
    y_test: Any = None
    groups: Any = None
    labels: Any = None
    weights: Any = None


def batches_of(
    data: Data | Mapping[str, Any], task: str = CLASSIFICATION, where: str = "data()"
) -> tuple[Iterator[Batch], tuple[str, ...] | None]:
    """Batches of these examples, and the names of their classes or labels.

    The names are None where only the end of an iterator shows how many there are: `write_examples`
    counts them then. Raises DataError beginning with `where` and the argument, also while the
    batches are drawn.
    """
    if task not in TASKS:
        raise DataError(f"{where}: task: expected {', '.join(TASKS)}, got {task!r:.60}")
    examples = _data(data, where)
    labels = _labels(examples.labels, where)
    if is_stream(examples.x_train) or is_stream(examples.x_test):
        return _streams(examples, task, labels, where), labels
    x, y = _arrays(examples, where)
    names, y = _targets(y, task, labels, where)
    beside = {
        name: (
            None
            if (column := getattr(examples, name)) is None
            else _column(column, len(x["train"]), name, where)
        )
        for name in ("groups", "weights")
    }
    rows = {
        part: max(
            1,
            min(
                MOST_ROWS,
                BATCH_BYTES // (example_bytes(plain(values[:1], where)) + example_bytes(y[part])),
            ),
        )
        for part, values in x.items()
    }
    batches = (
        _cut(x[part], y[part], rows[part], beside if part == "train" else {}, f"{where}: x_{part}")
        for part in ("train", "test")
    )
    return Batches(chain.from_iterable(batches), sum(map(len, x.values()))), names


def _data(data: Any, where: str) -> Data:
    names = [field.name for field in fields(Data)]
    if isinstance(data, Mapping):
        for key in data:
            if key not in names:
                near = difflib.get_close_matches(str(key), names, n=1)
                raise DataError(
                    f"{where}: unknown key {key!r:.60}:"
                    f" {f'did you mean {near[0]}?' if near else 'expected '}"
                    f"{'' if near else ', '.join(names)}"
                )
        data = Data(**{"x_train": None, **data})
    if not isinstance(data, Data):
        raise DataError(
            f"{where}: expected Data(x_train, y_train, x_test, y_test) or a dict with these keys,"
            f" got {type(data).__name__}; return one"
        )
    for part in ("train", "test"):
        x, y = (getattr(data, f"{name}_{part}") for name in "xy")
        if x is None and not (part == "test" and is_stream(data.x_train)):
            raise DataError(f"{where}: x_{part} is missing; give the examples of the {part} set")
        if x is not None and y is None and not is_stream(x):
            raise DataError(
                f"{where}: y_{part} is missing; give each example of x_{part} its target"
            )
        if y is not None and is_stream(x):
            raise DataError(
                f"{where}: y_{part}: expected none, because x_{part} is an iterator of pairs; leave"
                " it out"
            )
    return data


def _labels(names: Any, where: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise DataError(f"{where}: labels: expected a list of names, got {names!r:.60}")
    labels = tuple(map(str, names))
    if not labels or len(set(labels)) != len(labels):
        raise DataError(
            f"{where}: labels: expected different names, one a class, got"
            f" {', '.join(labels)[:80] or 'none'}"
        )
    return labels


def _sliced(values: Any, where: str) -> Any:
    """Return what can be cut by rows without being read whole.

    Arrays and files of arrays can; all else becomes an array.
    """
    refuse_more(values, where)
    if isinstance(values, np.ndarray) or (hasattr(values, "chunks") and hasattr(values, "shape")):
        return values
    return plain(values, where)


def _arrays(examples: Data, where: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    x = {}
    y = {}
    for part in ("train", "test"):
        name = f"{where}: x_{part}"
        refuse_other_rows(
            getattr(examples, f"x_{part}"), getattr(examples, f"y_{part}"), f"{name} and y_{part}"
        )
        x[part] = _sliced(getattr(examples, f"x_{part}"), name)
        y[part] = plain(getattr(examples, f"y_{part}"), f"{where}: y_{part}")
        if not x[part].shape:
            raise DataError(
                f"{name}: expected (examples, ...), got one {plain(x[part], name).dtype}; give an"
                " array"
            )
        if not len(x[part]):
            raise DataError(f"{name}: expected at least one example, got none; add some")
        if not y[part].shape or len(y[part]) != len(x[part]):
            actual = len(y[part]) if y[part].shape else "one value"
            raise DataError(
                f"{where}: y_{part}: expected {len(x[part])} targets, one for each example of"
                f" x_{part}, got {actual}; give each example its target"
            )
    for beside in ("groups", "weights"):
        refuse_other_rows(
            examples.x_train, getattr(examples, beside), f"{where}: x_train and {beside}"
        )
    refuse_other_columns(examples.x_train, examples.x_test, f"{where}: x_train and x_test")
    expected = x["train"].shape[1:]
    actual = x["test"].shape[1:]
    if expected != actual:
        raise DataError(
            f"{where}: x_test: expected examples of shape {expected} as in x_train, got {actual};"
            " give one shape"
        )
    return x, y


def _targets(
    y: dict[str, NDArray[Any]], task: str, labels: tuple[str, ...] | None, where: str
) -> tuple[tuple[str, ...] | None, dict[str, NDArray[Any]]]:
    """Names of classes or labels, and targets as numbers."""
    y = {part: text_of(values) for part, values in y.items()}
    if task == CLASSIFICATION and y["train"].dtype.kind == "U":
        names = labels or tuple(map(str, np.unique(y["train"])))
        if labels is None:
            refuse_missing(f"{where}: y_train", names)
            refuse_alike(f"{where}: y_train", "labels", names)
        return names, {
            part: numbers_of(values, numbering(names), f"{where}: y_{part}")
            for part, values in y.items()
        }
    for part, values in y.items():
        if values.dtype.kind not in "fiub":
            raise DataError(
                f"{where}: y_{part}: expected numbers, got {values.dtype}; give numbers, or one"
                " text an example"
            )
        y[part] = targets(values, f"{where}: y_{part}", 0, task, labels)
    if task == CLASSIFICATION:
        PositionsLook().take(y["train"]).refuse(f"{where}: y_train", labels)
    if labels is not None or task == REGRESSION:
        return labels or (), y
    if task == CLASSIFICATION:
        return (
            numbered(
                np.bincount(y["train"].reshape(-1)), np.bincount(y["test"].reshape(-1)), where
            ),
            y,
        )
    return tuple(map(str, range(y["train"].shape[1]))), y


def _column(values: Any, rows: int, name: str, where: str) -> NDArray[Any]:
    column = plain(values, f"{where}: {name}")
    if column.shape != (rows,):
        raise DataError(
            f"{where}: {name}: expected {rows} numbers, one for each example of x_train, got "
            f"{len(column) if column.ndim == 1 else f'shape {column.shape}'}; give each its own"
        )
    return column


def _cut(
    x: Any, y: NDArray[Any], rows: int, beside: Mapping[str, Any], where: str
) -> Iterator[Batch]:
    for start in range(0, len(x), rows):
        cut = slice(start, start + rows)
        columns = {name: values[cut] for name, values in beside.items() if values is not None}
        yield Batch(plain(x[cut], where), y[cut], **columns, test="x_test" in where)


def _streams(
    examples: Data, task: str, labels: tuple[str, ...] | None, where: str
) -> Iterator[Batch]:
    for name in ("groups", "weights"):
        if getattr(examples, name) is not None:
            raise DataError(
                f"{where}: {name}: expected none, because x is an iterator; yield Batch(x, y,"
                f" {name}=...)"
            )
    for part, x in (("train", examples.x_train), ("test", examples.x_test)):
        if x is not None and not is_stream(x):
            raise DataError(
                f"{where}: x_{part}: expected an iterator as the other part is one; give both the"
                " same way"
            )
        if never_ends(x):
            raise DataError(
                f"{where}: x_{part}: expected an iterator that ends after each example came once,"
                " got one that never ends; leave out repeat()"
            )
    if labels:
        number = numbering(labels)
    else:
        number = None

    def batches() -> Iterator[Batch]:
        for part, stream in (("train", examples.x_train), ("test", examples.x_test)):
            if stream is not None:
                yield from ExampleStream(part, task, number, where).batches(stream)

    return batches()
