"""The manifest of a prepared data set, and how the set is opened and checked."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.data.archive import file_digest
from core.data.dataset import (
    CLASSES,
    CLASSIFICATION,
    DTYPES,
    LARGEST_RANK,
    MANIFEST,
    NOT_SAID,
    SUBJECTS,
    TASKS,
    WEIGHTS,
    WINDOWS,
    Array,
    Dataset,
    HeldOut,
)
from core.data.signals import Signals
from core.ground.errors import DataError
from core.ground.files import parsed_json

FORMAT_VERSION = 2
"""Version that is raised when the meaning of these files changes."""


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
    if dataset.held_out == NOT_SAID:
        held_out = {}
    else:
        held_out = {"held_out": asdict(dataset.held_out)}
    signals = dataset.signals.known_facts()
    return {
        "format": FORMAT_VERSION,
        "name": dataset.name,
        "source": dataset.source,
        "source_sha256": dataset.source_sha256,
        "preparation": dict(preparation),
        "task": dataset.task,
        "labels": dataset.labels,
        "standardized": dataset.standardized,
        **{
            name: array and {"file": array.file, "dtype": array.dtype, "shape": array.shape}
            for name, array in arrays.items()
        },
        "train_windows": dataset.train_windows,
        "test_windows": dataset.test_windows,
        **held_out,
        **({"signals": signals} if signals else {}),
        "files": dict(files),
        "sha256": dataset.sha256,
    }


def is_prepared(folder: Path) -> bool:
    """Whether a folder looks like a prepared data set; `open_prepared` checks its content."""
    names = (WINDOWS, CLASSES, SUBJECTS, *(f"inputs.{dtype}" for dtype in DTYPES))
    return (folder / MANIFEST).is_file() and any((folder / name).exists() for name in names)


def open_prepared(folder: Path) -> Dataset:
    """The data set in `folder`, after comparing every file with the manifest.

    Raises DataError when a file is missing, has another size or another hash: `prepare` then
    prepares it again.
    """
    manifest = folder / MANIFEST
    try:
        content = manifest.read_bytes()
    except OSError as problem:
        raise DataError(
            f"{manifest}: cannot be read ({problem.strerror}); prepare the data again"
        ) from None
    try:
        fields = parsed_json(content)
        if fields["format"] != FORMAT_VERSION:
            raise DataError(
                f"{manifest}: expected format {FORMAT_VERSION}, got {fields['format']}; prepare the"
                " data again"
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
            signals=_signals(fields),
        )
        _refuse_unknown(dataset)
        expected = {array.file: str(fields["files"][array.file]) for array in dataset.arrays}
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise DataError(f"{manifest}: damaged ({problem!r}); prepare the data again") from None
    _compare(dataset, expected)
    return dataset


def _held_out(fields: Any) -> HeldOut:
    groups = tuple(str(name) for name in fields.get("groups", ()))
    return HeldOut(
        str(fields.get("by", "")), groups, str(fields.get("leak", "")), str(fields.get("note", ""))
    )


def _signals(fields: Any) -> Signals:
    """Return what the source says, and how the preparation filtered it where it did."""
    preparation = fields.get("preparation", {})
    filters = preparation.get("filters")
    if preparation.get("nine_channels") is False:
        filters = None  # described channels are not filtered, and state it
    facts = {**fields.get("signals", {}), **({} if filters is None else {"filters": filters})}
    shape = fields["inputs"]["shape"]
    return Signals.of(facts, int(shape[-1]) if shape else 0)


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
        expected_names = [
            (dataset.inputs, f"inputs.{dataset.inputs.dtype}"),
            (dataset.targets, f"targets.{dataset.targets.dtype}"),
        ]
        is_known = all(array.file == name for array, name in expected_names)
        is_known = is_known and dataset.weights in (None, Array(WEIGHTS, "float32", ()))
        is_known = (
            is_known
            and dataset.task in TASKS
            and (dataset.task != CLASSIFICATION or dataset.targets.dtype == "int32")
        )
        is_known = is_known and bool(dataset.inputs.shape or not dataset.standardized)
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
