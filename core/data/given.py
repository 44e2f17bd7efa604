"""Examples as a person gives them: arrays, lists or iterators, which become batches.

Arrays are cut into batches and pairs are gathered; from there on both go one way. What the numbers
must be is checked where batches are written, by `core.data.batch.BatchValidator`.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np

from core.data.arrays import AnyArray
from core.data.batch import (
    BATCH_BYTES,
    MOST_ROWS,
    Batch,
    Batches,
    ClassNumbers,
    cut_batches,
    example_bytes,
    never_ends,
)
from core.data.dataset import CLASSIFICATION
from core.data.recordings import refuse_alike, refuse_missing
from core.data.stored_values import (
    plain,
    refuse_more,
    refuse_other_columns,
    refuse_other_rows,
)
from core.ground.errors import DataError

PARTS = ("train", "test")


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


def text_of(values: AnyArray) -> AnyArray:
    """Text of pandas and of Python objects as text of numpy."""
    if (
        values.dtype.kind == "O"
        and values.ndim
        and all(isinstance(value, str) for value in values.flat)
    ):
        return values.astype(str)
    return values


class ExampleStream:
    """Pairs and batches of one part, gathered into batches whose classes are numbers."""

    def __init__(self, part: str, task: str, labels: Sequence[str] | None, where: str) -> None:
        self._part = part
        self._task = task
        self._labels = labels
        self._numbers = ClassNumbers(np.array(labels or ()))
        self._where = where
        self._pairs: list[tuple[AnyArray, AnyArray]] = []
        self._bytes = self._row = 0

    def batches(self, stream: Iterable[Any]) -> Iterator[Batch]:
        """Yield the examples of the stream in batches. Raises DataError naming the row."""
        for item in stream:
            if isinstance(item, Batch):
                yield from self._gathered()
                y = self._numbered(plain(item.y, f"{self._where}: y_{self._part}"))
                self._row += len(item.x)
                yield replace(item, y=y, test=item.test or self._part == "test")
                continue
            self._add(item)
            if self._bytes >= BATCH_BYTES or len(self._pairs) >= MOST_ROWS:
                yield from self._gathered()
        yield from self._gathered()

    def _numbered(self, y: AnyArray) -> AnyArray:
        """Return the numbers of text classes, of which the first is that of the next row."""
        y = text_of(y)
        if self._task != CLASSIFICATION or y.dtype.kind != "U":
            return y
        name = f"{self._where}: y_{self._part}"
        if not self._labels:
            raise DataError(
                f"{name}[{self._row}]: expected a number, got {str(y.flat[0])!r:.60}; name all"
                " classes in labels, which an iterator does not say beforehand"
            )
        return self._numbers.of(y, name, self._row)

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
        if y.ndim > 1 or (y.ndim and x.ndim > 1 and len(x) == len(y)):
            raise DataError(
                f"{self._where}: y_{place}: expected the target of one example, got shape"
                f" {y.shape}; yield one pair an example, or Batch(x, y) for many, also of one:"
                " Batch(x[None], y[None])"
            )
        y = self._numbered(y[None])[0]
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
) -> tuple[Batches, tuple[str, ...] | None]:
    """Batches of these examples, and the names of their classes or labels.

    The names are None where the numbers alone show how many there are: `write_examples` counts them
    then. Raises DataError beginning with `where` and the argument, also while the batches are
    drawn.
    """
    examples = _data(data, where)
    labels = _labels(examples.labels, where)
    inputs_of = {"train": examples.x_train, "test": examples.x_test}
    rows = 0
    if any(map(is_stream, inputs_of.values())):
        _refuse_half_a_stream(examples, inputs_of, where)
    else:
        arrays = _arrays(examples, where)
        if labels is None and task == CLASSIFICATION:
            labels = _text_classes(arrays, where)
        inputs_of = {part: _cut(columns, f"{where}: x_{part}") for part, columns in arrays.items()}
        rows = sum(len(columns["x"]) for columns in arrays.values())
    batches = (
        ExampleStream(part, task, labels, where).batches(stream)
        for part, stream in inputs_of.items()
        if stream is not None
    )
    return Batches(chain.from_iterable(batches), rows), labels


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


def _arrays(examples: Data, where: str) -> dict[str, dict[str, Any]]:
    """Return x, y, groups and weights of each part, as long as each other. Raises DataError."""
    columns_of: dict[str, dict[str, Any]] = {}
    for part in PARTS:
        x = getattr(examples, f"x_{part}")
        columns = {"y": getattr(examples, f"y_{part}")}
        if part == "train":
            columns |= {"groups": examples.groups, "weights": examples.weights}
        sliced = _sliced(x, f"{where}: x_{part}")
        if not sliced.shape:
            raise DataError(
                f"{where}: x_{part}: expected (examples, ...), got one"
                f" {plain(sliced, where).dtype}; give an array"
            )
        columns_of[part] = {"x": sliced}
        for kind, values in columns.items():
            if values is None:
                continue
            name = f"y_{part}" if kind == "y" else kind
            refuse_other_rows(x, values, f"{where}: x_{part} and {name}")
            column = text_of(plain(values, f"{where}: {name}"))
            if not column.shape or len(column) != len(sliced):
                actual = len(column) if column.shape else "one value"
                raise DataError(
                    f"{where}: {name}: expected {len(sliced)}"
                    f" {'targets' if kind == 'y' else 'numbers'}, one for each example of x_{part},"
                    f" got {actual}; give each its own"
                )
            columns_of[part][kind] = column
    refuse_other_columns(examples.x_train, examples.x_test, f"{where}: x_train and x_test")
    expected = columns_of["train"]["x"].shape[1:]
    actual_shape = columns_of["test"]["x"].shape[1:]
    if expected != actual_shape:
        raise DataError(
            f"{where}: x_test: expected examples of shape {expected} as in x_train, got"
            f" {actual_shape}; give one shape"
        )
    return columns_of


def _text_classes(arrays: dict[str, dict[str, Any]], where: str) -> tuple[str, ...] | None:
    """Return the names of text classes, and make text of both parts; None where all are numbers.

    Raises DataError.
    """
    y = arrays["train"]["y"]
    if y.dtype.kind != "U":
        return None
    names = tuple(map(str, np.unique(y)))
    refuse_missing(f"{where}: y_train", names)
    refuse_alike(f"{where}: y_train", "labels", names)
    arrays["test"]["y"] = arrays["test"]["y"].astype(str)
    return names


def _cut(columns: Mapping[str, Any], where: str) -> Iterator[Batch]:
    """Yield batches of a part of some bytes, of arrays or of files of arrays."""
    first_example = plain(columns["x"][:1], where)
    size = example_bytes(first_example) + example_bytes(columns["y"])
    return cut_batches(columns, max(1, min(MOST_ROWS, BATCH_BYTES // size)))


def _refuse_half_a_stream(examples: Data, iterators: Mapping[str, Any], where: str) -> None:
    """Raise DataError for what does not go with iterators, and for one that never ends."""
    for name in ("groups", "weights"):
        if getattr(examples, name) is not None:
            raise DataError(
                f"{where}: {name}: expected none, because x is an iterator; yield Batch(x, y,"
                f" {name}=...)"
            )
    for part, x in iterators.items():
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
