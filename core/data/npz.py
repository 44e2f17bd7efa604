"""A user's own arrays in one `.npz`: windows of motion, or examples of any shape.

They are read a few rows at a time.

Windows, as `npz_windows` reads them, are what has three axes and neither `task` nor `standardized`.
In all other files `x_train`, `x_test` are (examples, ...) numbers, and `y_train`, `y_test` are
classes, (examples,) or one at each position, (examples, positions), labels, (examples, labels), or
values, (examples, ...): what `task` names, without it values where they are float and classes
elsewhere. Optional besides `subject_train`, `subject_test` and `labels`: `weight_train`,
(examples,); `task`, text; `standardized`, true or false; what `signals_of` reads.
"""

import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from core.data.archive import LARGEST_TOTAL_BYTES, one_line
from core.data.batch import BATCH_BYTES, MOST_ROWS, Batch, Batches, Examples, PositionsLook
from core.data.dataset import CLASSIFICATION, MULTILABEL, REGRESSION, TASKS
from core.data.npz_windows import (
    HEADER_DAMAGE,
    REQUIRED,
    classes_of,
    is_one_hot,
    labels_of,
    load_arrays,
    open_archive,
    read_windows,
    subjects_of,
)
from core.data.recordings import Cutting, Recordings, Report
from core.data.signals import KEYS, signals_of
from core.data.source import Reader
from core.ground.errors import DataError

BESIDE = (
    "y_train",
    "y_test",
    "subject_train",
    "subject_test",
    "labels",
    "weight_train",
    "task",
    "standardized",
    *KEYS,
)
"""Arrays that are read whole: all but `x_train` and `x_test`."""
LARGEST_HEADER_BYTES = 10_000
LARGEST_EXAMPLE_BYTES = 256 * 2**20
"""Limit of an example, of which some are in memory; a small archive may claim larger ones."""
_WINDOW_AXES = 3


class ArchivedArray:
    """One array of the archive, from its first row to its last."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, name: str) -> None:
        self._where = f"{path}: {name}"
        try:
            self._stream = archive.open(f"{name}.npy")
            version = npy.read_magic(self._stream)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"format {version[0]}.{version[1]}")
            if version == (1, 0):
                header = npy.read_array_header_1_0
            else:
                header = npy.read_array_header_2_0
            self.shape, by_columns, self.dtype = header(self._stream, LARGEST_HEADER_BYTES)
        except (*HEADER_DAMAGE, EOFError) as problem:
            raise DataError(
                f"{self._where}: cannot be read ({one_line(problem)[:80]}); save a plain array of"
                " numbers"
            ) from None
        self._by_columns = by_columns

    def checked(self) -> "ArchivedArray":
        """Return these rows if they are examples that can be read one after the other.

        Raises DataError.
        """
        if (
            self.dtype.kind not in "fiub"
            or not self.shape
            or min(self.shape) < 0
            or 0 in self.shape[1:]
        ):
            raise DataError(
                f"{self._where}: expected (examples, ...) numbers, got {self.dtype} of shape"
                f" {self.shape}; save such"
            )
        example_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
        if example_bytes > LARGEST_EXAMPLE_BYTES:
            raise DataError(
                f"{self._where}: an example has {example_bytes} bytes, at most"
                f" {LARGEST_EXAMPLE_BYTES} are read; cut the examples smaller"
            )
        if self._by_columns and len(self.shape) > 1:
            raise DataError(
                f"{self._where}: expected rows one after the other, got columns; save"
                " np.ascontiguousarray of it"
            )
        return self

    def __len__(self) -> int:
        return int(self.shape[0])

    def blocks(self, most: int = MOST_ROWS) -> Iterator[NDArray[Any]]:
        """Yield all rows, at most `most` at a time."""
        example_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
        at_once = max(1, min(most, BATCH_BYTES // example_bytes))
        for start in range(0, len(self), at_once):
            count = min(at_once, len(self) - start)
            content = self._stream.read(count * example_bytes)
            if len(content) != count * example_bytes:
                row = start + len(content) // example_bytes
                raise DataError(
                    f"{self._where}[{row}]: expected {len(self)} examples, got {row}: cut short;"
                    " save it again"
                )
            yield np.frombuffer(content, self.dtype).reshape(count, *self.shape[1:])


def read_npz(path: Path, cutting: Cutting, report: Report) -> "Recordings | Examples":
    """Windows or examples.

    Raises DataError naming the file, the array, the index and the remedy.
    """
    if _holds_windows(path):
        return read_windows(path, cutting, report)
    arrays = load_arrays(path, BESIDE, report)
    shapes = {}
    with open_archive(path) as archive:
        for part in ("train", "test"):
            shapes[part] = ArchivedArray(path, archive.zip, f"x_{part}").checked().shape
            arrays[f"x_{part}"] = np.empty((shapes[part][0], 0))
    if shapes["train"][1:] != shapes["test"][1:]:
        raise DataError(
            f"{path}: x_test: expected examples of shape {shapes['train'][1:]} as in x_train, got "
            f"{shapes['test'][1:]}; "
            "give both one shape"
        )
    task = _task(path, arrays)
    y, labels = _targets(path, arrays, task)
    subjects = subjects_of(path, arrays)
    weights = arrays.get("weight_train")
    if weights is not None and weights.shape != shapes["train"][:1]:
        raise DataError(
            f"{path}: weight_train: expected shape {shapes['train'][:1]}, got {weights.shape}; give"
            " each its own"
        )
    batches = Batches(
        _batches(path, y, subjects, weights), sum(shape[0] for shape in shapes.values())
    )
    if len(shapes["train"]) > 1:
        width = shapes["train"][-1]
    else:
        width = 1
    signals = signals_of(path, arrays, width)
    return Examples(batches, task, labels, _standardized(path, arrays), signals=signals)


def _holds_windows(path: Path) -> bool:
    """Return whether these are windows of motion, or too damaged to say.

    Then their reader says what is wrong.
    """
    with open_archive(path) as archive:
        names = set(archive.files)
        if not set(REQUIRED) <= names:
            return True
        if {"task", "standardized", "weight_train"} & names:
            return False
        try:
            x, y = (ArchivedArray(path, archive.zip, name) for name in ("x_train", "y_train"))
        except DataError:
            return True
        by_step = len(y.shape) == 2 and y.dtype.kind in "iuU" and y.shape[1:] == x.shape[1:2]
        size = sum(info.file_size for info in archive.zip.infolist())
        return len(x.shape) == _WINDOW_AXES and not by_step and size <= LARGEST_TOTAL_BYTES


def _batches(
    path: Path,
    y: Mapping[str, NDArray[Any]],
    subjects: NDArray[np.int32],
    weights: NDArray[Any] | None,
) -> Iterator[Batch]:
    with open_archive(path) as archive:
        first = 0
        for part in ("train", "test"):
            start = 0
            for block in ArchivedArray(path, archive.zip, f"x_{part}").checked().blocks():
                rows = slice(start, start + len(block))
                start = rows.stop
                groups = subjects[first + rows.start : first + rows.stop]
                if weights is not None and part == "train":
                    counted = weights[rows]
                else:
                    counted = None
                yield Batch(block, y[part][rows], groups, counted, test=part == "test")
            first += start


def _task(path: Path, arrays: Mapping[str, NDArray[Any]]) -> str:
    if "task" in arrays:
        array = arrays["task"]
        if array.dtype.kind == "U" and array.size == 1:
            task = str(array.reshape(-1)[0])
        else:
            task = f"{array.dtype} {array.shape}"
        if task not in TASKS:
            raise DataError(
                f"{path}: task: expected {', '.join(TASKS)}, got {task:.60}; save"
                " task=np.array('regression')"
            )
        return task
    y = arrays["y_train"]
    if y.dtype.kind == "f" and not is_one_hot(y):
        return REGRESSION
    return CLASSIFICATION


def _targets(
    path: Path, arrays: Mapping[str, NDArray[Any]], task: str
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...] | None]:
    train = len(arrays["x_train"])
    if task == CLASSIFICATION:
        if arrays["y_train"].dtype.kind in "fiub":
            PositionsLook().take(arrays["y_train"]).refuse(
                f"{path}: y_train", labels_of(path, arrays)
            )
        labels, classes = classes_of(path, arrays, positions=True)
        absent = np.flatnonzero(
            np.bincount(classes[:train].reshape(-1), minlength=len(labels)) == 0
        )
        if absent.size:
            raise DataError(
                f"{path}: class {absent[0]} ({labels[absent[0]]!r}) has no training example; add"
                " some, or remove the class"
            )
        return {"train": classes[:train], "test": classes[train:]}, labels
    y = {part: arrays[f"y_{part}"] for part in ("train", "test")}
    for part, values in y.items():
        if not values.shape or len(values) != len(arrays[f"x_{part}"]):
            raise DataError(
                f"{path}: y_{part}: expected {len(arrays[f'x_{part}'])} targets, one for each"
                f" example of x_{part}, got shape {values.shape}; give each its own"
            )
    return y, labels_of(path, arrays) if task == MULTILABEL else ()


def _standardized(path: Path, arrays: Mapping[str, NDArray[Any]]) -> bool:
    if "standardized" not in arrays:
        return False
    array = arrays["standardized"]
    if array.dtype.kind != "b" or array.size != 1:
        raise DataError(
            f"{path}: standardized: expected true or false, got {array.dtype} {array.shape}; save"
            " np.array(True)"
        )
    return bool(array.reshape(-1)[0])


class Npz(Reader):
    """A user's own arrays in one `.npz`."""

    name = "npz"
    accepted = "an .npz with x_train, y_train, x_test and y_test"
    is_what = (
        "[your own windows](#your-own-windows-in-an-npz): any length, channels and classes; or "
        "[arrays of any shape](#in-an-npz)"
    )
    windows_are_cut = "by you"
    marker = None
    suffix = ".npz"
    usual_names = ()
    settings = ()
    read = staticmethod(read_npz)
