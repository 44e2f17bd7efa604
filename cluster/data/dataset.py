"""A prepared data set on disk: what its folder holds, and how it is opened and checked.

Each file is one array, raw little-endian in C order from offset 0, one row an example, the training rows first.
Windows of motion lie in `windows.f32`, (windows, steps, channels), and `classes.i32`; other examples in `inputs.DTYPE`
and `targets.DTYPE`. `subjects.i32` says who was recorded, `weights.f32` how much an example counts. Worker processes
map these files by path.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data.archive import file_digest
from cluster.data.recordings import FILTERS, LEAST_HZ, MOST_HZ
from cluster.errors import DataError

FORMAT_VERSION = 2
"""Raised when the meaning of these files changes."""
WINDOWS, CLASSES, SUBJECTS, WEIGHTS, MANIFEST = (
    "windows.f32", "classes.i32", "subjects.i32", "weights.f32", "manifest.json",
)  # fmt: skip

CLASSIFICATION, MULTILABEL, REGRESSION = TASKS = ("classification", "multilabel", "regression")
"""What a set is for: one class of several, any number of labels at once, or numbers."""
DTYPES = ("float16", "float32", "int8", "uint8", "int16", "uint16", "int32", "int64")
"""What examples may be stored as: what every worker can gather."""
LARGEST_RANK = 8
"""Axes of one example; TensorFlow's gather takes no more."""


@dataclass(frozen=True)
class Array:
    """One file of a data set: its name, numpy's name of the dtype (little-endian), and the shape of ONE example."""

    file: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def example_bytes(self) -> int:
        """Bytes of one example."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class HeldOut:
    """How the test rows were chosen, as a reader says it; empty where none does.

    by: what stays whole, such as `user`, or `window` where nothing does; groups: names of the groups by their numbers
    in `subjects`; leak: why the figures of the test promise too much, empty where they do not; note: who and what was
    recorded, in words.
    """

    by: str = ""
    groups: tuple[str, ...] = ()
    leak: str = ""
    note: str = ""

    def lines(self) -> tuple[str, ...]:
        """For a person, a line for each that is said."""
        named = ", ".join(f"{number} {name}" for number, name in enumerate(self.groups[:MOST_SHOWN]))
        more = f" and {len(self.groups) - MOST_SHOWN} more" if len(self.groups) > MOST_SHOWN else ""
        groups = (f"groups by {self.by}: {named}{more}",) if self.groups else ()
        leak = f"LEAK: {self.leak}" if self.leak else ""
        return (*((self.note,) if self.note else ()), *groups, *((leak,) if leak else ()))


NOT_SAID = HeldOut()
MOST_SHOWN = 40
"""Names of groups in a line."""


@dataclass(frozen=True)
class Dataset:
    """Prepared examples, the training rows first.

    Where `standardized` is true the inputs are in the source's own units (g and rad/s for phones) and the engine
    standardizes each channel, which is the last axis; where it is false models get them as they are.
    `targets` are classes, int32 of shape () or one at each position, (positions,); labels, uint8 of shape (labels,),
    each 0 or 1; or float32 numbers.
    `filters` says how the recordings were filtered, `two-way` or `causal`, and `sampling_hz` how many steps a second
    has; None where the source does not say.
    `sha256` is over the prepared content, `source_sha256` over the bytes it was made from.
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
    filters: str | None = None
    sampling_hz: float | None = None

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
        """How many numbers a model answers an example with: one a label, or one a target value in a regression."""
        return math.prod(self.targets.shape) if self.task == REGRESSION else len(self.labels)

    @property
    def window_steps(self) -> int:
        """Steps of a window; 0 where the inputs are not of shape (steps, channels)."""
        return self.inputs.shape[0] if len(self.inputs.shape) == 2 else 0

    @property
    def channels(self) -> int:
        """Channels of a window; 0 where the inputs are not of shape (steps, channels)."""
        return self.inputs.shape[1] if len(self.inputs.shape) == 2 else 0

    @property
    def holds_windows(self) -> bool:
        """Whether the built-in networks can train on it: standardized float32 (steps, channels), each of one class."""
        return (
            self.task == CLASSIFICATION
            and not self.targets.shape
            and self.standardized
            and self.inputs.dtype == "float32"
            and len(self.inputs.shape) == 2
        )

    @property
    def unit(self) -> str:
        """What one row is called."""
        return "windows" if self.holds_windows else "examples"

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Every array of the set."""
        subjects = Array(SUBJECTS, "int32", ())
        return (self.inputs, self.targets, subjects, *(() if self.weights is None else (self.weights,)))

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files in the folder: of the arrays, and of the manifest."""
        return (*(array.file for array in self.arrays), MANIFEST)

    def summary(self) -> str:
        """How many examples of which shape, and what each one's target is."""
        rows = f"{self.train_windows:,} training and {self.test_windows:,} test"
        if self.holds_windows:
            return f"{rows} windows of {self.window_steps} x {self.channels}, {len(self.labels)} classes"
        shape = " x ".join(map(str, self.input_shape)) or "one number"
        what = {CLASSIFICATION: "classes", MULTILABEL: "labels", REGRESSION: "target values"}[self.task]
        if self.task == CLASSIFICATION and self.targets.shape:
            what += f" at {' x '.join(map(str, self.targets.shape))} positions"
        return f"{rows} examples of {shape} {self.inputs.dtype}, {self.outputs} {what}"

    def training_part(self) -> "Dataset":
        """The set without its test rows: what maps or reads it ends where they begin."""
        return replace(self, test_windows=0)

    def mapped(self, array: Array) -> "np.memmap[Any, np.dtype[Any]]":
        """One of the arrays, (rows, *shape), mapped read-only."""
        dtype = np.dtype(array.dtype).newbyteorder("<")
        return np.memmap(self.folder / array.file, dtype=dtype, mode="r", shape=(self.rows, *array.shape))

    def windows(self) -> "np.memmap[Any, np.dtype[Any]]":
        """Inputs in their dtype, (rows, *input_shape), mapped read-only."""
        return self.mapped(self.inputs)

    def target_values(self) -> "np.memmap[Any, np.dtype[Any]]":
        """Targets in their dtype, (rows, *targets.shape), mapped read-only."""
        return self.mapped(self.targets)

    def classes(self) -> NDArray[np.int32]:
        """Class of each example of a classification, int32 (rows, *targets.shape), zero-based into `labels`.

        Raises ValueError for another task.
        """
        if self.task != CLASSIFICATION:
            raise ValueError(f"{self.source}: expected a classification, got {self.task}, which has no classes")
        count = self.rows * math.prod(self.targets.shape)
        classes = np.fromfile(self.folder / self.targets.file, dtype="<i4", count=count)
        return classes.reshape(self.rows, *self.targets.shape)

    def subjects(self) -> NDArray[np.int32]:
        """Group of each example, such as who was recorded, int32 (rows,); -1 where the source does not say."""
        return np.fromfile(self.folder / SUBJECTS, dtype="<i4", count=self.rows)


def content_digest(files: Mapping[str, str], dataset: Dataset) -> str:
    """SHA-256 (hex) over the digests of the files, by name, and over what makes numbers of their bytes."""
    shape = (dataset.rows, *dataset.input_shape)
    described: list[Any] = [sorted(files.items()), dataset.labels, shape, dataset.train_windows]
    if dataset.inputs.file != WINDOWS:
        described += [[array.dtype, array.shape] for array in dataset.arrays]
        described += [dataset.task, dataset.standardized]
    return hashlib.sha256(json.dumps(described, ensure_ascii=True).encode()).hexdigest()


def manifest_of(dataset: Dataset, files: Mapping[str, str], preparation: Mapping[str, Any]) -> dict[str, Any]:
    """What the manifest says: `files` are digests by name, `preparation` the settings that made the set."""
    arrays = {"inputs": dataset.inputs, "targets": dataset.targets, "weights": dataset.weights}
    held_out = {} if dataset.held_out == NOT_SAID else {"held_out": asdict(dataset.held_out)}
    said = {"filters": dataset.filters, "sampling_hz": dataset.sampling_hz}
    signals = {name: value for name, value in said.items() if value is not None}
    return {
        "format": FORMAT_VERSION,
        "name": dataset.name,
        "source": dataset.source,
        "source_sha256": dataset.source_sha256,
        "preparation": dict(preparation),
        "task": dataset.task,
        "labels": dataset.labels,
        "standardized": dataset.standardized,
        **{name: array and {"file": array.file, "dtype": array.dtype, "shape": array.shape}
           for name, array in arrays.items()},
        "train_windows": dataset.train_windows,
        "test_windows": dataset.test_windows,
        **held_out,
        **({"signals": signals} if signals else {}),
        "files": dict(files),
        "sha256": dataset.sha256,
    }  # fmt: skip


def is_prepared(folder: Path) -> bool:
    """Whether a folder looks like a prepared data set; `open_prepared` checks its content."""
    names = (WINDOWS, CLASSES, SUBJECTS, *(f"inputs.{dtype}" for dtype in DTYPES))
    return (folder / MANIFEST).is_file() and any((folder / name).exists() for name in names)


def open_prepared(folder: Path) -> Dataset:
    """The data set in `folder`, after comparing every file with the manifest.

    Raises DataError when a file is missing, has another size or another hash: `prepare` then prepares it again.
    """
    manifest = folder / MANIFEST
    try:
        content = manifest.read_bytes()
    except OSError as problem:
        raise DataError(f"{manifest}: cannot be read ({problem.strerror}); prepare the data again") from None
    try:
        fields = json.loads(content)
        if fields["format"] != FORMAT_VERSION:
            raise DataError(
                f"{manifest}: expected format {FORMAT_VERSION}, got {fields['format']}; prepare the data again"
            )
        dataset = Dataset(
            folder=folder,
            labels=tuple(str(label) for label in fields["labels"]),
            name=str(fields["name"]),
            source=str(fields["source"]),
            source_sha256=str(fields["source_sha256"]),
            train_windows=int(fields["train_windows"]),
            test_windows=int(fields["test_windows"]),
            sha256=str(fields["sha256"]),
            inputs=_array(fields["inputs"]),
            targets=_array(fields["targets"]),
            standardized=bool(fields["standardized"]),
            task=str(fields["task"]),
            weights=None if fields["weights"] is None else _array(fields["weights"]),
            held_out=_held_out(fields.get("held_out", {})),
            filters=_filters(fields.get("preparation", {})) or _filters(fields.get("signals", {})),
            sampling_hz=_sampling_hz(fields.get("signals", {})),
        )
        _refuse_unknown(dataset)
        expected = {array.file: str(fields["files"][array.file]) for array in dataset.arrays}
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise DataError(f"{manifest}: damaged ({problem!r}); prepare the data again") from None
    _compare(dataset, expected)
    return dataset


def _held_out(fields: Any) -> HeldOut:
    groups = tuple(str(name) for name in fields.get("groups", ()))
    return HeldOut(str(fields.get("by", "")), groups, str(fields.get("leak", "")), str(fields.get("note", "")))


def _filters(preparation: Any) -> str | None:
    found = preparation.get("filters")
    if found not in (None, *FILTERS):
        raise ValueError(f"filters {found!r:.40}")
    return None if found is None else str(found)


def _sampling_hz(signals: Any) -> float | None:
    found = signals.get("sampling_hz")
    if found is None:
        return None
    if not LEAST_HZ <= float(found) <= MOST_HZ:
        raise ValueError(f"sampling_hz {found!r:.40}")
    return float(found)


def _array(fields: Any) -> Array:
    array = Array(str(fields["file"]), str(fields["dtype"]), tuple(int(size) for size in fields["shape"]))
    if array.dtype not in DTYPES or len(array.shape) > LARGEST_RANK or not all(size > 0 for size in array.shape):
        raise ValueError(f"{array.dtype} of shape {array.shape}")
    return array


def _refuse_unknown(dataset: Dataset) -> None:
    """Raises ValueError for what no preparation writes; the names above all, which become paths."""
    if dataset.inputs.file == WINDOWS:
        known = dataset.holds_windows and dataset.targets == Array(CLASSES, "int32", ()) and dataset.weights is None
    else:
        named = [
            (dataset.inputs, f"inputs.{dataset.inputs.dtype}"),
            (dataset.targets, f"targets.{dataset.targets.dtype}"),
        ]
        known = all(array.file == name for array, name in named)
        known = known and dataset.weights in (None, Array(WEIGHTS, "float32", ()))
        known = known and dataset.task in TASKS and (dataset.task != CLASSIFICATION or dataset.targets.dtype == "int32")
        known = known and bool(dataset.inputs.shape or not dataset.standardized)
    if not known or min(dataset.train_windows, dataset.test_windows) < 0:
        raise ValueError("arrays that no preparation writes")


def _compare(dataset: Dataset, expected: Mapping[str, str]) -> None:
    for array in dataset.arrays:
        path = dataset.folder / array.file
        size = dataset.rows * array.example_bytes
        try:
            found = path.stat().st_size
        except OSError as problem:
            raise DataError(f"{path}: cannot be read ({problem.strerror}); prepare the data again") from None
        if found != size:
            raise DataError(f"{path}: expected {size} bytes, got {found}; prepare the data again")
        if file_digest(path) != expected[array.file]:
            raise DataError(f"{path}: its content does not match {MANIFEST}; prepare the data again")
    if content_digest(expected, dataset) != dataset.sha256:
        raise DataError(f"{dataset.folder / MANIFEST}: its figures do not match its sha256; prepare the data again")
