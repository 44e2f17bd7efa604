"""A user's own arrays in one `.npz`: windows of motion, or examples of any shape.

`x_train`, `x_test` are (examples, ...) numbers, and `y_train`, `y_test` are classes, whole numbers
or text, (examples,) or one at each position, (examples, positions), labels, (examples, labels), or
values, (examples, ...): what `task` names, without it values where they are float and classes
elsewhere. Optional besides: `subject_train`, `subject_test`, (examples,) whole numbers; `labels`,
(classes,) text; `weight_train`, (examples,); `task`, text; `standardized`, true or false; of the
channels `channels` and `units`, text, `sampling_hz` and `filters`.

What has three axes, (windows, steps, channels), and neither `task`, `standardized` nor
`weight_train` are windows, which the engine standardizes. All else is read a few rows at a time.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from core.data.archive import LARGEST_TOTAL_BYTES
from core.data.arrays import AnyArray, Integers
from core.data.batch import (
    ROWS_AT_ONCE,
    Batch,
    Batches,
    BatchValidator,
    ClassNumbers,
    Examples,
    PositionsLook,
)
from core.data.dataset import CLASSIFICATION, MULTILABEL, REGRESSION, TASKS
from core.data.npz_arrays import (
    REQUIRED,
    ArchivedArray,
    fact_of,
    load_arrays,
    open_archive,
    signals_of,
)
from core.data.recordings import (
    LARGEST_INTEGER,
    NO_SUBJECT,
    Cutting,
    Recordings,
    Report,
    refuse_alike,
    refuse_missing,
    silent,
)
from core.data.source import Reader
from core.data.stored_values import refuse_at
from core.ground.errors import DataError

PARTS = ("train", "test")
OF_EXAMPLES = ("task", "standardized", "weight_train")
"""Arrays that windows have not."""
BESIDE = (
    *("y_train", "y_test", "subject_train", "subject_test", "labels", *OF_EXAMPLES),
    *("channels", "units", "sampling_hz", "filters"),
)
"""Arrays that are read whole: all but `x_train` and `x_test`."""
DEFAULT_WINDOW_STEPS = 128
"""The default of a job: an `.npz` of another length is then taken as it is."""
_WINDOW_AXES = 3


def refuse_other_steps(where: object, steps: int, cutting: Cutting) -> None:
    """Raise DataError where a job asks for another length than windows that came cut have."""
    if cutting.window_steps not in (DEFAULT_WINDOW_STEPS, steps):
        raise DataError(
            f"{where}: window_steps: its windows have {steps} steps, got {cutting.window_steps};"
            " leave window_steps out"
        )


def read_npz(path: Path, cutting: Cutting, report: Report) -> Examples:
    """Windows or examples.

    Raises DataError naming the file, the array, the index and the remedy.
    """
    content = _Content(path, _holds_windows(path), report)
    if content.is_windows:
        refuse_other_steps(path, content.shapes["train"][1], cutting)
    return content.examples()


def read_windows(path: Path) -> Recordings:
    """Return the windows of a file as they are, float32, training rows first. Raises DataError."""
    examples = _Content(path, True, silent).examples()
    gate = BatchValidator(str(path), examples.task, examples.labels)
    batches = [gate.passed(batch) for batch in examples.batches]
    return Recordings(
        windows=np.concatenate([batch.x for batch in batches]),
        classes=np.concatenate([batch.y for batch in batches]),
        subjects=np.concatenate([np.asarray(batch.groups) for batch in batches]),
        train_windows=sum(len(batch.x) for batch in batches if not batch.test),
        labels=tuple(examples.labels or ()),
        signals=examples.signals,
    )


def _holds_windows(path: Path) -> bool:
    """Return whether these are windows of motion, or too damaged to say."""
    with open_archive(path) as archive:
        names = set(archive.files)
        if not set(REQUIRED) <= names:
            return True
        if names.intersection(OF_EXAMPLES):
            return False
        try:
            x, y = (ArchivedArray(path, archive.zip, name) for name in ("x_train", "y_train"))
        except DataError:
            return True
        by_step = len(y.shape) == 2 and y.dtype.kind in "iuU" and y.shape[1:] == x.shape[1:2]
        size = sum(info.file_size for info in archive.zip.infolist())
        return len(x.shape) == _WINDOW_AXES and not by_step and size <= LARGEST_TOTAL_BYTES


class _Content:
    """What a file holds: its arrays, and the shapes of the inputs, by part."""

    def __init__(self, path: Path, is_windows: bool, report: Report) -> None:
        self.path = path
        self.is_windows = is_windows
        if is_windows:
            self._row = "window"
            self.arrays = load_arrays(path, (*REQUIRED, *BESIDE), report)
            self._windows = {part: self._windows_of(part) for part in PARTS}
            self.shapes = {part: windows.shape for part, windows in self._windows.items()}
        else:
            self._row = "example"
            self.arrays = load_arrays(path, BESIDE, report)
            with open_archive(path) as archive:
                self.shapes = {
                    part: ArchivedArray(path, archive.zip, f"x_{part}").checked().shape
                    for part in PARTS
                }
        expected = self.shapes[PARTS[0]][1:]
        actual = self.shapes[PARTS[1]][1:]
        if expected != actual:
            raise self._error(
                "x_test",
                f"expected examples of shape {expected} as in x_train, got {actual}; give both one"
                " shape",
            )

    def _error(self, name: str, message: str) -> DataError:
        return DataError(f"{self.path}: {name}: {message}")

    def examples(self) -> Examples:
        """Return what is read. Raises DataError."""
        if self.is_windows:
            task = CLASSIFICATION
        else:
            task = self._task()
        y, labels = self._targets(task)
        subjects = {part: self._subjects(part) for part in PARTS}
        weights = self.arrays.get("weight_train")
        train = self.shapes["train"]
        if weights is not None and weights.shape != train[:1]:
            raise self._error(
                "weight_train",
                f"expected shape {train[:1]}, got {weights.shape}; give each its own",
            )
        expected = ("true or false", "True")
        standardized = fact_of(
            self.path, self.arrays, "standardized", "b", lambda value: True, expected
        )
        return Examples(
            Batches(
                self._batches(y, subjects, weights), sum(shape[0] for shape in self.shapes.values())
            ),
            task,
            labels,
            self.is_windows or bool(standardized),
            signals=signals_of(self.path, self.arrays, train[-1] if len(train) > 1 else 1),
        )

    def _windows_of(self, part: str) -> AnyArray:
        name = f"x_{part}"
        windows = self.arrays[name]
        if windows.ndim != _WINDOW_AXES or 0 in windows.shape[1:]:
            raise self._error(
                name,
                f"expected (windows, steps, channels), got shape {windows.shape}; reshape it",
            )
        return windows

    def _batches(
        self,
        y: dict[str, AnyArray],
        subjects: dict[str, Integers],
        weights: AnyArray | None,
    ) -> Iterator[Batch]:
        for part in PARTS:
            start = 0
            for block in self._blocks(part):
                rows = slice(start, start + len(block))
                start = rows.stop
                if weights is not None and part == "train":
                    counted = weights[rows]
                else:
                    counted = None
                yield Batch(
                    block, y[part][rows], subjects[part][rows], counted, test=part == "test"
                )

    def _blocks(self, part: str) -> Iterator[AnyArray]:
        if self.is_windows:
            windows = self._windows[part]
            for start in range(0, len(windows), ROWS_AT_ONCE):
                block = windows[start : start + ROWS_AT_ONCE]
                if block.dtype != np.float32 and block.dtype.kind in "fiub":
                    block = block.astype(np.float64)  # which the store narrows to float32
                yield block
            return
        with open_archive(self.path) as archive:
            yield from ArchivedArray(self.path, archive.zip, f"x_{part}").checked().blocks()

    def _task(self) -> str:
        expected = (", ".join(TASKS), "'regression'")
        task = fact_of(self.path, self.arrays, "task", "U", TASKS.__contains__, expected)
        if task is not None:
            return str(task)
        y = self.arrays["y_train"]
        if y.dtype.kind == "f" and not _is_one_hot(y):
            return REGRESSION
        return CLASSIFICATION

    def _targets(self, task: str) -> tuple[dict[str, AnyArray], tuple[str, ...] | None]:
        """Return the targets of both parts, and the names of classes or labels."""
        labels = self._labels()
        if task == CLASSIFICATION:
            return self._classes(labels)
        y = {part: self.arrays[f"y_{part}"] for part in PARTS}
        for part, values in y.items():
            rows = self.shapes[part][0]
            if not values.shape or len(values) != rows:
                raise self._error(
                    f"y_{part}",
                    f"expected {rows} targets, one for each example of x_{part}, got shape"
                    f" {values.shape}; give each its own",
                )
        return y, labels if task == MULTILABEL else ()

    def _labels(self) -> tuple[str, ...] | None:
        labels = self.arrays.get("labels")
        if labels is None:
            return None
        if labels.ndim != 1 or labels.dtype.kind != "U" or not labels.size:
            raise self._error(
                "labels",
                f"expected text, one name a class, got {labels.dtype} of shape {labels.shape}; save"
                " labels=np.array([...]) with a text for each class",
            )
        names = tuple(map(str, labels))
        if len(set(names)) != len(names):
            raise self._error(
                "labels", f"expected different names, got {', '.join(names)}; rename one"
            )
        return names

    def _classes(
        self, labels: tuple[str, ...] | None
    ) -> tuple[dict[str, AnyArray], tuple[str, ...]]:
        """Return the class of each row, or of each of its positions, and the names of all.

        Classes are numbered by the labels, else by the sorted distinct values of the training part.
        """
        columns = {part: self._column("y", part) for part in PARTS}
        train, test = columns.values()
        if not self.is_windows and train.dtype.kind in "fiub":
            PositionsLook().take(train).refuse(f"{self.path}: y_train", labels)
        if train.shape[1:] != test.shape[1:]:
            raise self._error(
                "y_test",
                f"expected classes of shape {train.shape[1:]} an example as in y_train, got"
                f" {test.shape[1:]}; give both one shape",
            )
        is_text = train.dtype.kind == "U"
        if is_text != (test.dtype.kind == "U"):
            raise self._error("y_test", f"expected {train.dtype} as in y_train, got {test.dtype}")
        if not is_text:
            columns = {part: self._whole(f"y_{part}", column) for part, column in columns.items()}
        values = np.unique(columns["train"])
        if labels is not None:
            if is_text:
                values = np.array(labels)
            else:
                values = np.arange(len(labels))
        names = labels or tuple(map(str, values))
        self._refuse_names("y_train" if labels is None else "labels", names)
        if labels:
            remedy = "number classes from 0 as in labels"
        else:
            remedy = "train on that class too"
        numbers = ClassNumbers(values)
        y = {
            part: numbers.of(column, f"{self.path}: y_{part}", remedy=remedy)
            for part, column in columns.items()
        }
        for absent in np.flatnonzero(np.bincount(y["train"].ravel(), minlength=len(names)) == 0):
            raise DataError(
                f"{self.path}: class {absent} ({names[absent]!r}) has no training {self._row};"
                " add some, or remove the class"
            )
        return y, names

    def _refuse_names(self, array: str, names: Sequence[str]) -> None:
        """Raise DataError for a name that cannot be read, such as the empty one."""
        for name in names:
            if not name.strip() or not name.isprintable():
                raise self._error(
                    array,
                    f"expected names of printable letters, got {name!r:.60}; rename the class",
                )
        if self.is_windows:
            refuse_missing(self.path, names)
            refuse_alike(self.path, "labels", names)

    def _subjects(self, part: str) -> Integers:
        """Return the subject of each row; -1 where none is named."""
        name = f"subject_{part}"
        if name in self.arrays:
            return self._whole(name, self._column("subject", part))
        return np.full(self.shapes[part][0], NO_SUBJECT, dtype=np.int32)

    def _column(self, kind: str, part: str) -> AnyArray:
        """Return what has a value for each row; classes of examples may have several."""
        column = self.arrays[f"{kind}_{part}"]
        rows = self.shapes[part][:1]
        has_positions = column.ndim > 1 and column.shape[:1] == rows and column.shape[-1] > 1
        if column.shape == rows or (kind == "y" and has_positions and not self.is_windows):
            return column
        remedy = f"give each {self._row} its own"
        if column.ndim > 1 and math.prod(column.shape[1:]) == 1:
            remedy = f"save {kind}.ravel()"
        elif kind == "y" and _is_one_hot(column):
            remedy = "one-hot classes: save y.argmax(axis=1)"
        raise self._error(
            f"{kind}_{part}",
            f"expected shape ({rows[0]},), one for each {self._row} of x_{part}, got"
            f" {column.shape}; {remedy}",
        )

    def _whole(self, name: str, column: AnyArray) -> Integers:
        where = f"{self.path}: {name}"
        if column.dtype.kind == "f":
            wrong = column != np.floor(column)  # NaN is unequal to itself
            refuse_at(
                column, wrong, where, 0, "whole numbers", f"correct or remove the {self._row}"
            )
        elif column.dtype.kind not in "iub":
            if column.dtype.kind == "S":
                remedy = "save it with astype(str)"
            else:
                remedy = "save numbers or text"
            expected = "whole numbers or text"
            if not name.startswith("y_"):
                remedy = "number the people from 0, no two alike"
                expected = "whole numbers"
            raise self._error(name, f"expected {expected}, got {column.dtype}; {remedy}")
        wrong = (column < 0) | (column > LARGEST_INTEGER)
        refuse_at(column, wrong, where, 0, f"0 to {LARGEST_INTEGER}", "number from 0")
        return column.astype(np.int32)


def _is_one_hot(y: AnyArray) -> bool:
    """Return whether each row of a matrix has a single 1, and 0 elsewhere."""
    if y.ndim != 2 or y.dtype.kind not in "fiub":
        return False
    return bool(((y == 0) | (y == 1)).all() and (y.sum(axis=1) == 1).all())


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
