"""A user's own windows in one `.npz`, as `numpy.savez_compressed` writes it.

What else such a file holds is read here too.

`x_train`, `x_test`: (windows, steps, channels), any real numbers; `y_train`, `y_test`: (windows,),
integers or text; optional `subject_train`, `subject_test`: (windows,) whole numbers; optional
`labels`: (classes,) text; optional what `signals_of` reads: `channels`, `units`, `sampling_hz`
and `filters`.
"""

import difflib
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.archive import (
    LARGEST_TOTAL_BYTES,
    ZIP_DAMAGE,
    one_line,
    refuse_long_list,
    refuse_unsafe,
)
from core.data.recordings import LARGEST_INTEGER, NO_SUBJECT, Cutting, Recordings, Report
from core.data.signals import KEYS, signals_of
from core.data.stored_values import refuse_at
from core.ground.errors import DataError

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
OPTIONAL = ("subject_train", "subject_test", "labels", *KEYS)
LARGEST_EXAMPLES_BYTES = 2**40
"""Bytes to which an archive of examples, which are read a few at a time, may unpack."""
DEFAULT_WINDOW_STEPS = 128
"""The default of a job: an `.npz` of another length is then taken as it is."""


HEADER_DAMAGE = (ValueError, SyntaxError, TokenError, LookupError, RecursionError)
"""Errors that numpy raises over a member's header, which it reads as Python source."""


def read_windows(path: Path, cutting: Cutting, report: Report) -> Recordings:
    """The windows as they are, float32, training rows first.

    Classes are numbered by `labels`, else by the sorted distinct values of `y_train`. Raises
    DataError naming the file, the array, the index and the remedy.
    """
    arrays = load_arrays(path, REQUIRED + OPTIONAL, report)
    windows = [_windows(path, arrays, part) for part in ("train", "test")]
    train, test = windows
    if train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"{path}: x_test: expected windows of shape {train.shape[1:]} as in x_train, got"
            f" {test.shape[1:]}; cut both sets the same way"
        )
    refuse_other_steps(path, train.shape[1], cutting)
    labels, classes = classes_of(path, arrays)
    return Recordings(
        windows=np.concatenate(windows),
        classes=classes,
        subjects=subjects_of(path, arrays),
        train_windows=len(train),
        labels=labels,
        signals=signals_of(path, arrays, train.shape[2]),
    )


def refuse_other_steps(where: object, steps: int, cutting: Cutting) -> None:
    """Raise DataError where a job asks for another length than windows that came cut have."""
    if cutting.window_steps not in (DEFAULT_WINDOW_STEPS, steps):
        raise DataError(
            f"{where}: window_steps: its windows have {steps} steps, got {cutting.window_steps};"
            " leave window_steps out"
        )


@contextmanager
def open_archive(path: Path) -> Iterator[Any]:
    """The archive, as numpy opens it.

    Raises DataError, also for what its damage does to the body.
    """
    try:
        if not zipfile.is_zipfile(path):
            raise DataError(
                f"{path}: not a complete .npz file, such as numpy.savez_compressed writes; save it"
                " again"
            )
        with path.open("rb") as stream:
            refuse_long_list(stream, str(path))
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as archive:
                refuse_unsafe(archive.zip, str(path), LARGEST_EXAMPLES_BYTES)
                yield archive
    except (*ZIP_DAMAGE, AttributeError, TypeError) as problem:
        raise DataError(
            f"{path}: not a complete .npz file ({one_line(problem)}); save it again"
        ) from None


def load_arrays(path: Path, names: Sequence[str], report: Report) -> dict[str, NDArray[Any]]:
    """Read those of the named arrays that are there, whole.

    Raises DataError where a required one is missing.
    """
    arrays: dict[str, NDArray[Any]] = {}
    with open_archive(path) as archive:
        _refuse_large(path, archive.zip, names)
        _refuse_misspelt(path, archive.files, names)
        present = [name for name in names if name in archive.files]
        absent = [name for name in REQUIRED if name not in archive.files]
        if absent:
            raise DataError(
                f"{path}: {absent[0]} is missing (it holds"
                f" {', '.join(archive.files) or 'nothing'}); save it with"
                f" numpy.savez_compressed({', '.join(f'{name}=...' for name in REQUIRED)})"
            )
        for done, name in enumerate(present, start=1):
            try:
                arrays[name] = archive[name]
            except (*HEADER_DAMAGE, MemoryError) as problem:
                raise DataError(
                    f"{path}: {name}: cannot be read ({one_line(problem)}); save a plain array of"
                    " numbers or text"
                ) from None
            # numpy gives the bytes of what does not begin as .npy does.
            if not isinstance(arrays[name], np.ndarray):
                raise DataError(
                    f"{path}: {name}: not an array in .npy format; save an array of numbers or text"
                )
            report("reading", done, len(present))
    return arrays


def _refuse_misspelt(path: Path, stored_names: Sequence[str], names: Sequence[str]) -> None:
    """Raise DataError for an array with nearly the name of one that is read and is missing.

    What it says would be lost without a word.
    """
    for name in set(stored_names) - set(names):
        near = difflib.get_close_matches(
            name.lower(), set(names) - set(stored_names), n=1, cutoff=0.9
        )
        if near:
            raise DataError(
                f"{path}: no array is called {name!r:.60}; save it as {near[0]}, or leave it out"
            )


def _refuse_large(path: Path, archive: zipfile.ZipFile, names: Sequence[str]) -> None:
    members = {f"{name}.npy" for name in names}
    total = sum(info.file_size for info in archive.infolist() if info.filename in members)
    if total > LARGEST_TOTAL_BYTES:
        raise DataError(
            f"{path}: unpacks to {total} bytes, more than {LARGEST_TOTAL_BYTES}; save fewer"
            " windows, or float32"
        )


def _windows(path: Path, arrays: Mapping[str, NDArray[Any]], part: str) -> NDArray[np.float32]:
    name = f"x_{part}"
    windows = arrays[name]
    if windows.ndim != 3 or 0 in windows.shape[1:]:
        raise DataError(
            f"{path}: {name}: expected (windows, steps, channels), got shape {windows.shape};"
            " reshape it"
        )
    if windows.dtype.kind not in "fiub":
        raise DataError(
            f"{path}: {name}: expected real numbers, got {windows.dtype}; convert it to float32"
        )
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(windows, dtype=np.float32)
    remedy = "remove or repair the window"
    wrong = ~np.isfinite(narrow)
    refuse_at(windows, wrong, f"{path}: {name}", 0, "a finite float32 number", remedy)
    return narrow


def _column(
    path: Path, arrays: Mapping[str, NDArray[Any]], kind: str, part: str, *, positions: bool = False
) -> NDArray[Any]:
    name = f"{kind}_{part}"
    column = arrays[name]
    windows = len(arrays[f"x_{part}"])
    if positions and column.ndim > 1 and column.shape[0] == windows and column.shape[-1] > 1:
        return column
    if column.shape != (windows,):
        raise DataError(
            f"{path}: {name}: expected shape ({windows},), one for each window of x_{part}, got"
            f" {column.shape}; {_reshaped(kind, column)}"
        )
    return column


def _reshaped(kind: str, column: NDArray[Any]) -> str:
    """Return a remedy for a column of another shape; one column of a matrix has no argmax but 0."""
    if column.ndim > 1 and math.prod(column.shape[1:]) == 1:
        return f"save {kind}.ravel()"
    if kind == "y" and is_one_hot(column):
        return "one-hot classes: save y.argmax(axis=1)"
    return "give each window its own"


def is_one_hot(y: NDArray[Any]) -> bool:
    """Return whether each row of a matrix has a single 1, and 0 elsewhere."""
    if y.ndim != 2 or y.dtype.kind not in "fiub":
        return False
    return bool(((y == 0) | (y == 1)).all() and (y.sum(axis=1) == 1).all())


def _whole_numbers(path: Path, name: str, column: NDArray[Any]) -> NDArray[np.int32]:
    if column.dtype.kind == "f":
        wrong = column != np.floor(column)  # NaN is unequal to itself
        remedy = "correct or remove the window"
        refuse_at(column, wrong, f"{path}: {name}", 0, "whole numbers", remedy)
    elif column.dtype.kind not in "iub":
        if name.startswith("y_"):
            expected = "whole numbers or text"
        else:
            expected = "whole numbers"
        raise DataError(
            f"{path}: {name}: expected {expected}, got {column.dtype}; {_converted(name, column)}"
        )
    wrong = (column < 0) | (column > LARGEST_INTEGER)
    refuse_at(column, wrong, f"{path}: {name}", 0, f"0 to {LARGEST_INTEGER}", "number from 0")
    return column.astype(np.int32)


def _converted(name: str, column: NDArray[Any]) -> str:
    """Return what makes text or numbers of an array of another kind."""
    if not name.startswith("y_"):
        return "number the people from 0, no two alike"
    if column.dtype.kind == "S":
        return "save it with astype(str)"
    return "save numbers or text"


def classes_of(
    path: Path, arrays: Mapping[str, NDArray[Any]], *, positions: bool = False
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Names of the classes, and the class of each row of both parts, int32.

    Raises DataError naming the index.

    With `positions` a row may have one class at each of its positions.
    """
    columns = {
        part: _column(path, arrays, "y", part, positions=positions) for part in ("train", "test")
    }
    shapes = {part: column.shape[1:] for part, column in columns.items()}
    if shapes["train"] != shapes["test"]:
        raise DataError(
            f"{path}: y_test: expected classes of shape {shapes['train']} an example as in y_train,"
            f" got {shapes['test']}; give both one shape"
        )
    kinds = {part: column.dtype.kind == "U" for part, column in columns.items()}
    if kinds["train"] != kinds["test"]:
        raise DataError(
            f"{path}: y_test: expected {columns['train'].dtype} as in y_train, got"
            f" {columns['test'].dtype}"
        )
    if not kinds["train"]:
        columns = {
            part: _whole_numbers(path, f"y_{part}", column) for part, column in columns.items()
        }
    labels = labels_of(path, arrays)
    if labels is None:
        class_values = np.unique(columns["train"])
    else:
        if kinds["train"]:
            class_values = np.array(labels)
        else:
            class_values = np.arange(len(labels))
    names = labels or tuple(str(value) for value in class_values)
    _refuse_names(path, "y_train" if labels is None else "labels", names)
    numbers = []
    for part, column in columns.items():
        unknown = ~np.isin(column, class_values)
        expected = f"one of {', '.join(map(str, class_values[:20]))}"
        if labels:
            remedy = "number classes from 0 as in labels"
        else:
            remedy = "train on that class too"
        refuse_at(column, unknown, f"{path}: y_{part}", 0, expected, remedy)
        order = np.argsort(class_values)
        numbers.append(order[np.searchsorted(class_values, column, sorter=order)])
    return names, np.concatenate(numbers).astype(np.int32)


def _refuse_names(path: Path, array: str, names: Sequence[str]) -> None:
    """Raise DataError for a name that cannot be read.

    The empty one, which labels have for a class without a name, is such a name.
    """
    for name in names:
        if not name.strip() or not name.isprintable():
            raise DataError(
                f"{path}: {array}: expected names of printable letters, got {name!r:.60}; rename"
                " the class"
            )


def labels_of(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[str, ...] | None:
    """The names in `labels`; None without them.

    Raises DataError for what are no different names.
    """
    if "labels" not in arrays:
        return None
    labels = arrays["labels"]
    if labels.ndim != 1 or labels.dtype.kind != "U" or not labels.size:
        raise DataError(
            f"{path}: labels: expected text, one name a class, got {labels.dtype} of shape "
            f"{labels.shape}; save labels=np.array([...]) with a text for each class"
        )
    names = tuple(str(label) for label in labels)
    if len(set(names)) != len(names):
        raise DataError(
            f"{path}: labels: expected different names, got {', '.join(names)}; rename one"
        )
    return names


def subjects_of(path: Path, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int32]:
    """The subject of each row of both parts, int32; -1 where none is named.

    Raises DataError naming the index.
    """
    columns = []
    for part in ("train", "test"):
        name = f"subject_{part}"
        if name in arrays:
            columns.append(_whole_numbers(path, name, _column(path, arrays, "subject", part)))
        else:
            columns.append(np.full(len(arrays[f"x_{part}"]), NO_SUBJECT, dtype=np.int32))
    return np.concatenate(columns)
