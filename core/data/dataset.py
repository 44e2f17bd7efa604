"""A prepared data set on disk: its files, its manifest, and how it is opened and checked.

Each file is one array, raw little-endian in C order from offset 0, one row an example, the training
rows first. Windows of motion lie in `windows.f32`, (windows, steps, channels), and `classes.i32`;
other examples in `inputs.DTYPE` and `targets.DTYPE`. `subjects.i32` says who was recorded,
`weights.f32` how much an example counts. Worker processes map these files by path.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.archive import file_digest
from core.data.signals import UNKNOWN, Signals
from core.data.split import NOT_SAID, HeldOut
from core.ground.errors import DataError
from core.ground.files import read_json

WINDOWS = "windows.f32"
CLASSES = "classes.i32"
SUBJECTS = "subjects.i32"
WEIGHTS = "weights.f32"
MANIFEST = "manifest.json"

CLASSIFICATION, MULTILABEL, REGRESSION = TASKS = ("classification", "multilabel", "regression")
"""Tasks of a set: one class of several, any number of labels at once, or numbers."""
DTYPES = ("float16", "float32", "int8", "uint8", "int16", "uint16", "int32", "int64")
"""Types in which examples may be stored: every worker can gather them."""
LARGEST_RANK = 8
"""Axes of one example; TensorFlow's gather takes no more."""


@dataclass(frozen=True)
class Array:
    """One file of a data set.

    It has a name, numpy's name of the dtype (little-endian), and the shape of ONE example.
    """

    file: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def example_bytes(self) -> int:
        """Bytes of one example."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Dataset:
    """Prepared examples, the training rows first.

    Where `standardized` is true the inputs are in the source's own units (g and rad/s for phones)
    and the engine standardizes each channel, which is the last axis; where it is false models get
    them as they are. `targets` are classes, int32 of shape () or one at each position,
    (positions,); labels, uint8 of shape (labels,), each 0 or 1; or float32 numbers. `signals` is
    what the source says of the channels of its windows. `sha256` is over the prepared content,
    `source_sha256` over the bytes it was made from.
    """

    name: str
    source: str
    source_sha256: str
    folder: Path
    labels: tuple[str, ...]
    train_windows: int
    test_windows: int
    sha256: str
    inputs: Array
    targets: Array
    standardized: bool = True
    task: str = CLASSIFICATION
    weights: Array | None = None
    held_out: HeldOut = NOT_SAID
    signals: Signals = UNKNOWN

    @property
    def rows(self) -> int:
        """Examples, those for training and those of the test."""
        return self.train_windows + self.test_windows

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example's input."""
        return self.inputs.shape

    @property
    def outputs(self) -> int:
        """How many numbers a model answers an example with: one a label, or a target value."""
        if self.task == REGRESSION:
            return math.prod(self.targets.shape)
        return len(self.labels)

    @property
    def window_steps(self) -> int:
        """Steps of a window; 0 where the inputs are not of shape (steps, channels)."""
        if len(self.inputs.shape) == 2:
            return self.inputs.shape[0]
        return 0

    @property
    def channels(self) -> int:
        """Channels of a window; 0 where the inputs are not of shape (steps, channels)."""
        if len(self.inputs.shape) == 2:
            return self.inputs.shape[1]
        return 0

    @cached_property
    def people(self) -> int | None:
        """Return how many people were recorded; None where the source does not say who is who."""
        if not self.holds_windows or self.held_out.by not in ("", "user"):
            return None
        subjects = np.unique(self.subjects())
        if not len(subjects) or subjects[0] < 0:
            return None
        return len(subjects)

    @property
    def holds_windows(self) -> bool:
        """Whether the built-in networks can train on it.

        They take standardized float32 (steps, channels), each of one class.
        """
        return (
            self.task == CLASSIFICATION
            and not self.targets.shape
            and self.standardized
            and self.inputs.dtype == "float32"
            and len(self.inputs.shape) == 2
        )

    @property
    def unit(self) -> str:
        """Name of one row."""
        if self.holds_windows:
            return "windows"
        return "examples"

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Every array of the set."""
        subjects = Array(SUBJECTS, "int32", ())
        return (
            self.inputs,
            self.targets,
            subjects,
            *(() if self.weights is None else (self.weights,)),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files in the folder: of the arrays, and of the manifest."""
        return (*(array.file for array in self.arrays), MANIFEST)

    def summary(self) -> str:
        """Say how many examples of which shape there are, and what each one's target is."""
        rows = f"{self.train_windows:,} training and {self.test_windows:,} test"
        if self.holds_windows:
            return (
                f"{rows} windows of {self.window_steps} x {self.channels}, {len(self.labels)}"
                " classes"
            )
        shape = " x ".join(map(str, self.input_shape)) or "one number"
        target_name = {
            CLASSIFICATION: "classes",
            MULTILABEL: "labels",
            REGRESSION: "target values",
        }[self.task]
        if self.task == CLASSIFICATION and self.targets.shape:
            target_name += f" at {' x '.join(map(str, self.targets.shape))} positions"
        return f"{rows} examples of {shape} {self.inputs.dtype}, {self.outputs} {target_name}"

    def training_part(self) -> "Dataset":
        """The set without its test rows: what maps or reads it ends where they begin."""
        return replace(self, test_windows=0)

    def mapped(self, array: Array) -> "np.memmap[Any, np.dtype[Any]]":
        """One of the arrays, (rows, *shape), mapped read-only."""
        dtype = np.dtype(array.dtype).newbyteorder("<")
        return np.memmap(
            self.folder / array.file, dtype=dtype, mode="r", shape=(self.rows, *array.shape)
        )

    def windows(self) -> "np.memmap[Any, np.dtype[Any]]":
        """Inputs in their dtype, (rows, *input_shape), mapped read-only."""
        return self.mapped(self.inputs)

    def target_values(self) -> "np.memmap[Any, np.dtype[Any]]":
        """Targets in their dtype, (rows, *targets.shape), mapped read-only."""
        return self.mapped(self.targets)

    def classes(self) -> NDArray[np.int32]:
        """Return the class of each example, int32 (rows, *targets.shape), zero-based.

        The numbers count in `labels`.

        Raises ValueError for another task.
        """
        if self.task != CLASSIFICATION:
            raise ValueError(
                f"{self.source}: expected a classification, got {self.task}, which has no classes"
            )
        count = self.rows * math.prod(self.targets.shape)
        classes = np.fromfile(self.folder / self.targets.file, dtype="<i4", count=count)
        return classes.reshape(self.rows, *self.targets.shape)

    def subjects(self) -> NDArray[np.int32]:
        """The group of each example, such as who was recorded, int32 (rows,); -1 where unknown."""
        return np.fromfile(self.folder / SUBJECTS, dtype="<i4", count=self.rows)


FORMAT_VERSION = 2
"""Version that is raised when the meaning of these files changes."""
_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    "name": str,
    "source": str,
    "source_sha256": str,
    "task": str,
    "standardized": bool,
    "train_windows": int,
    "test_windows": int,
    "sha256": str,
}
"""Fields of a set that its manifest has as they are, and what makes them of JSON."""


def content_digest(files: Mapping[str, str], dataset: Dataset) -> str:
    """Return the SHA-256 (hex) over the digests of the files, by name.

    It is also over what makes numbers of their bytes.
    """
    shape = (dataset.rows, *dataset.input_shape)
    described: list[Any] = [sorted(files.items()), dataset.labels, shape, dataset.train_windows]
    if dataset.inputs.file != WINDOWS:
        described += [[array.dtype, array.shape] for array in dataset.arrays]
        described += [dataset.task, dataset.standardized]
    return hashlib.sha256(json.dumps(described, ensure_ascii=True).encode()).hexdigest()


def manifest_of(
    dataset: Dataset, files: Mapping[str, str], preparation: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the manifest says.

    `files` are digests by name, `preparation` the settings that made the set.
    """
    arrays = {"inputs": dataset.inputs, "targets": dataset.targets, "weights": dataset.weights}
    optional = {"signals": dataset.signals.known_facts()}
    if dataset.held_out != NOT_SAID:
        optional["held_out"] = asdict(dataset.held_out)
    return {
        "format": FORMAT_VERSION,
        **{name: getattr(dataset, name) for name in _PLAIN},
        "labels": dataset.labels,
        "preparation": dict(preparation),
        **{name: array and asdict(array) for name, array in arrays.items()},
        **{name: facts for name, facts in optional.items() if facts},
        "files": dict(files),
    }


def open_prepared(folder: Path) -> Dataset:
    """The data set in `folder`, after comparing every file with the manifest.

    Raises DataError when a file is missing, has another size or another hash: `prepare` then
    prepares it again.
    """
    manifest = folder / MANIFEST
    try:
        fields = read_json(manifest)
        if fields["format"] != FORMAT_VERSION:
            raise DataError(
                f"{manifest}: expected format {FORMAT_VERSION}, got {fields['format']}; prepare the"
                " data again"
            )
        dataset = Dataset(
            **{name: kind(fields[name]) for name, kind in _PLAIN.items()},
            folder=folder,
            labels=tuple(str(label) for label in fields["labels"]),
            inputs=_array(fields["inputs"]),
            targets=_array(fields["targets"]),
            weights=None if fields["weights"] is None else _array(fields["weights"]),
            held_out=HeldOut.of(fields.get("held_out", {})),
            signals=Signals.of_manifest(fields),
        )
        _refuse_unknown(dataset)
        expected = {array.file: str(fields["files"][array.file]) for array in dataset.arrays}
    except OSError as problem:
        raise DataError(
            f"{manifest}: cannot be read ({problem.strerror}); prepare the data again"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise DataError(f"{manifest}: damaged ({problem!r}); prepare the data again") from None
    _compare(dataset, expected)
    return dataset


def _array(fields: Any) -> Array:
    array = Array(
        str(fields["file"]), str(fields["dtype"]), tuple(int(size) for size in fields["shape"])
    )
    if (
        array.dtype not in DTYPES
        or len(array.shape) > LARGEST_RANK
        or not all(size > 0 for size in array.shape)
    ):
        raise ValueError(f"{array.dtype} of shape {array.shape}")
    return array


def _refuse_unknown(dataset: Dataset) -> None:
    """Raises ValueError for what no preparation writes; the names above all, which become paths."""
    if dataset.inputs.file == WINDOWS:
        is_known = (
            dataset.holds_windows
            and dataset.targets == Array(CLASSES, "int32", ())
            and dataset.weights is None
        )
    else:
        is_known = (
            dataset.inputs.file == f"inputs.{dataset.inputs.dtype}"
            and dataset.targets.file == f"targets.{dataset.targets.dtype}"
            and dataset.weights in (None, Array(WEIGHTS, "float32", ()))
            and dataset.task in TASKS
            and (dataset.task != CLASSIFICATION or dataset.targets.dtype == "int32")
            and bool(dataset.inputs.shape or not dataset.standardized)
        )
    if not is_known or min(dataset.train_windows, dataset.test_windows) < 0:
        raise ValueError("arrays that no preparation writes")


def _compare(dataset: Dataset, expected: Mapping[str, str]) -> None:
    for array in dataset.arrays:
        path = dataset.folder / array.file
        expected_size = dataset.rows * array.example_bytes
        try:
            actual_size = path.stat().st_size
        except OSError as problem:
            raise DataError(
                f"{path}: cannot be read ({problem.strerror}); prepare the data again"
            ) from None
        if actual_size != expected_size:
            raise DataError(
                f"{path}: expected {expected_size} bytes, got {actual_size}; prepare the data again"
            )
        if file_digest(path) != expected[array.file]:
            raise DataError(
                f"{path}: its content does not match {MANIFEST}; prepare the data again"
            )
    if content_digest(expected, dataset) != dataset.sha256:
        raise DataError(
            f"{dataset.folder / MANIFEST}: its figures do not match its sha256; prepare the data"
            " again"
        )
