"""A user's own windows in one `.npz`, as `numpy.savez_compressed` writes it, and what else such a file holds.

`x_train`, `x_test`: (windows, steps, channels), any real numbers; `y_train`, `y_test`: (windows,), integers or text;
optional `subject_train`, `subject_test`: (windows,) whole numbers; optional `labels`: (classes,) text; optional
`sampling_hz`: steps a second, a number; optional `filters`: `two-way` or `causal`, text.
"""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data.archive import LARGEST_TOTAL_BYTES, ZIP_DAMAGE, one_line, refuse_nameless
from cluster.data.recordings import CAUSAL, FILTERS, LEAST_HZ, MOST_HZ, NO_SUBJECT, Cutting, Recordings, Report
from cluster.data.table import LARGEST_INTEGER
from cluster.errors import DataError

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
OPTIONAL = ("subject_train", "subject_test", "labels", "sampling_hz", "filters")
DEFAULT_WINDOW_STEPS = 128
"""The default of a job: an `.npz` of another length is then taken as it is."""


HEADER_DAMAGE = (ValueError, SyntaxError, TokenError, LookupError, RecursionError)
"""What numpy raises over a member's header, which it reads as Python source."""


def read_windows(path: Path, cutting: Cutting, report: Report) -> Recordings:
    """The windows as they are, float32, training rows first.

    Classes are numbered by `labels`, else by the sorted distinct values of `y_train`. Raises DataError naming the
    file, the array, the index and the remedy.
    """
    arrays = load(path, REQUIRED + OPTIONAL, report)
    parts = [_windows(path, arrays, part) for part in ("train", "test")]
    train, test = parts
    if train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"{path}: x_test: expected windows of shape {train.shape[1:]} as in x_train, got {test.shape[1:]}; cut "
            f"both sets the same way"
        )
    if cutting.window_steps not in (DEFAULT_WINDOW_STEPS, train.shape[1]):
        raise DataError(
            f"{path}: window_steps: its windows have {train.shape[1]} steps, got "
            f"{cutting.window_steps}; leave window_steps out"
        )
    labels, classes = classes_of(path, arrays)
    return Recordings(
        windows=np.concatenate(parts),
        classes=classes,
        subjects=subjects_of(path, arrays),
        train_windows=len(train),
        labels=labels,
        sampling_hz=_sampling_hz(path, arrays),
        filters=_filters(path, arrays),
    )


def _sampling_hz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> float | None:
    given = arrays.get("sampling_hz")
    if given is None:
        return None
    one = given.reshape(-1)[0] if given.size == 1 and given.dtype.kind in "fiu" else None
    if one is None or not LEAST_HZ <= one <= MOST_HZ:
        raise DataError(
            f"{path}: sampling_hz: expected one number from {LEAST_HZ:g} to {MOST_HZ:g}, got "
            f"{f'{given.dtype} of shape {given.shape}' if one is None else one}; save sampling_hz=np.array(50.0)"
        )
    return float(one)


def _filters(path: Path, arrays: Mapping[str, NDArray[Any]]) -> str | None:
    given = arrays.get("filters")
    if given is None:
        return None
    found = f"{given.dtype} of shape {given.shape}"
    if given.size == 1 and given.dtype.kind == "U":
        found = str(given.reshape(-1)[0])
    if found not in FILTERS:
        raise DataError(
            f"{path}: filters: expected {' or '.join(FILTERS)}, got {found:.60}; save filters=np.array('{CAUSAL}'), or "
            "leave it out"
        )
    return found


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The archive, as numpy opens it. Raises DataError, also for what its damage does to the body."""
    try:
        if not zipfile.is_zipfile(path):
            raise DataError(f"{path}: not a complete .npz file, such as numpy.savez_compressed writes; save it again")
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            refuse_nameless(archive.zip, str(path))
            yield archive
    except (*ZIP_DAMAGE, AttributeError, TypeError) as problem:
        raise DataError(f"{path}: not a complete .npz file ({one_line(problem)}); save it again") from None


def load(path: Path, names: Sequence[str], report: Report) -> dict[str, NDArray[Any]]:
    """Those of the named arrays that are there, read whole. Raises DataError where a required one is missing."""
    arrays: dict[str, NDArray[Any]] = {}
    with opened(path) as archive:
        _refuse_large(path, archive.zip, names)
        present = [name for name in names if name in archive.files]
        absent = [name for name in REQUIRED if name not in archive.files]
        if absent:
            raise DataError(
                f"{path}: {absent[0]} is missing (it holds {', '.join(archive.files) or 'nothing'}); save it with "
                f"numpy.savez_compressed({', '.join(f'{name}=...' for name in REQUIRED)})"
            )
        for done, name in enumerate(present, start=1):
            try:
                arrays[name] = archive[name]
            except (*HEADER_DAMAGE, MemoryError) as problem:
                raise DataError(
                    f"{path}: {name}: cannot be read ({one_line(problem)}); save a plain array of numbers or text"
                ) from None
            # numpy gives the bytes of what does not begin as .npy does.
            if not isinstance(arrays[name], np.ndarray):
                raise DataError(f"{path}: {name}: not an array in .npy format; save an array of numbers or text")
            report("reading", done, len(present))
    return arrays


def _refuse_large(path: Path, archive: zipfile.ZipFile, names: Sequence[str]) -> None:
    wanted = {f"{name}.npy" for name in names}
    total = sum(info.file_size for info in archive.infolist() if info.filename in wanted)
    if total > LARGEST_TOTAL_BYTES:
        raise DataError(
            f"{path}: unpacks to {total} bytes, more than {LARGEST_TOTAL_BYTES}; save fewer windows, or float32"
        )


def _windows(path: Path, arrays: Mapping[str, NDArray[Any]], part: str) -> NDArray[np.float32]:
    name = f"x_{part}"
    windows = arrays[name]
    if windows.ndim != 3 or 0 in windows.shape[1:]:
        raise DataError(f"{path}: {name}: expected (windows, steps, channels), got shape {windows.shape}; reshape it")
    if windows.dtype.kind not in "fiub":
        raise DataError(f"{path}: {name}: expected real numbers, got {windows.dtype}; convert it to float32")
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(windows, dtype=np.float32)
    finite = np.isfinite(narrow)
    if not finite.all():
        index = tuple(int(position) for position in np.argwhere(~finite)[0])
        raise DataError(
            f"{path}: {name}[{', '.join(map(str, index))}]: expected a finite float32 number, got {windows[index]}; "
            f"remove or repair the window"
        )
    return narrow


def _column(
    path: Path, arrays: Mapping[str, NDArray[Any]], kind: str, part: str, *, positions: bool = False
) -> NDArray[Any]:
    name = f"{kind}_{part}"
    column, windows = arrays[name], len(arrays[f"x_{part}"])
    if positions and column.ndim > 1 and column.shape[0] == windows and column.shape[-1] > 1:
        return column
    if column.shape != (windows,):
        hint = "; one-hot classes: save y.argmax(axis=1)" if kind == "y" and column.ndim == 2 else ""
        raise DataError(
            f"{path}: {name}: expected shape ({windows},), one for each window of x_{part}, got {column.shape}{hint}"
        )
    return column


def _whole_numbers(path: Path, name: str, column: NDArray[Any]) -> NDArray[np.int32]:
    if column.dtype.kind not in "iub" and not (column.dtype.kind == "f" and (column == np.floor(column)).all()):
        raise DataError(f"{path}: {name}: expected whole numbers, got {column.dtype}; convert it with astype(int)")
    wrong = (column < 0) | (column > LARGEST_INTEGER)
    if wrong.any():
        place, got = _first(column, wrong)
        raise DataError(f"{path}: {name}{place}: expected 0 to {LARGEST_INTEGER}, got {got}; number from 0")
    return column.astype(np.int32)


def _first(column: NDArray[Any], wrong: NDArray[np.bool_]) -> tuple[str, Any]:
    """Where the first wrong value stands, as `[row, position]`, and the value."""
    index = tuple(int(at) for at in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    return f"[{', '.join(map(str, index))}]", column[index]


def classes_of(
    path: Path, arrays: Mapping[str, NDArray[Any]], *, positions: bool = False
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Names of the classes, and the class of each row of both parts, int32. Raises DataError naming the index.

    With `positions` a row may have one class at each of its positions.
    """
    columns = {part: _column(path, arrays, "y", part, positions=positions) for part in ("train", "test")}
    shapes = {part: column.shape[1:] for part, column in columns.items()}
    if shapes["train"] != shapes["test"]:
        raise DataError(
            f"{path}: y_test: expected classes of shape {shapes['train']} an example as in y_train, got "
            f"{shapes['test']}; give both one shape"
        )
    kinds = {part: column.dtype.kind == "U" for part, column in columns.items()}
    if kinds["train"] != kinds["test"]:
        raise DataError(f"{path}: y_test: expected {columns['train'].dtype} as in y_train, got {columns['test'].dtype}")
    if not kinds["train"]:
        columns = {part: _whole_numbers(path, f"y_{part}", column) for part, column in columns.items()}
    labels = labels_of(path, arrays)
    if labels is None:
        known = np.unique(columns["train"])
    else:
        known = np.array(labels) if kinds["train"] else np.arange(len(labels))
    names = labels or tuple(str(value) for value in known)
    numbers = []
    for part, column in columns.items():
        unknown = ~np.isin(column, known)
        if unknown.any():
            place, got = _first(column, unknown)
            raise DataError(
                f"{path}: y_{part}{place}: expected one of {', '.join(map(str, known[:20]))}, got "
                f"{got}; {'number classes from 0 as in labels' if labels else 'train on that class too'}"
            )
        order = np.argsort(known)
        numbers.append(order[np.searchsorted(known, column, sorter=order)])
    return names, np.concatenate(numbers).astype(np.int32)


def labels_of(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[str, ...] | None:
    """The names in `labels`; None without them. Raises DataError for what are no different names."""
    if "labels" not in arrays:
        return None
    labels = arrays["labels"]
    if labels.ndim != 1 or labels.dtype.kind != "U" or not labels.size:
        raise DataError(f"{path}: labels: expected text, one name a class, got {labels.dtype} of shape {labels.shape}")
    names = tuple(str(label) for label in labels)
    if len(set(names)) != len(names):
        raise DataError(f"{path}: labels: expected different names, got {', '.join(names)}; rename one")
    return names


def subjects_of(path: Path, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int32]:
    """The subject of each row of both parts, int32; -1 where none is named. Raises DataError naming the index."""
    columns = []
    for part in ("train", "test"):
        name = f"subject_{part}"
        if name in arrays:
            columns.append(_whole_numbers(path, name, _column(path, arrays, "subject", part)))
        else:
            columns.append(np.full(len(arrays[f"x_{part}"]), NO_SUBJECT, dtype=np.int32))
    return np.concatenate(columns)
