"""A prepared data set on disk: what its folder holds, and how it is opened and checked.

`windows.f32` is raw little-endian float32 in C order from offset 0, (windows, steps, channels), training rows first;
`classes.i32` and `subjects.i32` are raw little-endian int32. Worker processes map these files by path.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data.archive import file_digest
from cluster.errors import DataError

FORMAT_VERSION = 1
"""Raised when the meaning of these files changes."""
WINDOWS, CLASSES, SUBJECTS, MANIFEST = "windows.f32", "classes.i32", "subjects.i32", "manifest.json"


@dataclass(frozen=True)
class Dataset:
    """Prepared windows in raw units (g and rad/s for phones), not standardized, the training rows first.

    `sha256` is over the prepared content, `source_sha256` over the bytes it was made from.
    """

    name: str
    source: str
    source_sha256: str
    folder: Path
    labels: tuple[str, ...]
    window_steps: int
    channels: int
    train_windows: int
    test_windows: int
    sha256: str

    def windows(self) -> "np.memmap[Any, np.dtype[np.float32]]":
        """float32 (windows, steps, channels), mapped read-only."""
        shape = (self.train_windows + self.test_windows, self.window_steps, self.channels)
        return np.memmap(self.folder / WINDOWS, dtype="<f4", mode="r", shape=shape)

    def classes(self) -> NDArray[np.int32]:
        """Class of each window, int32 (windows,), zero-based into `labels`."""
        return np.fromfile(self.folder / CLASSES, dtype="<i4")

    def subjects(self) -> NDArray[np.int32]:
        """Subject of each window, int32 (windows,); -1 where the source does not say."""
        return np.fromfile(self.folder / SUBJECTS, dtype="<i4")


def content_digest(files: Mapping[str, str], labels: tuple[str, ...], shape: tuple[int, int, int], train: int) -> str:
    """SHA-256 (hex) over digests of the files, labels, shape (windows, steps, channels) and training windows."""
    described = json.dumps([sorted(files.items()), labels, shape, train], ensure_ascii=True)
    return hashlib.sha256(described.encode()).hexdigest()


def is_prepared(folder: Path) -> bool:
    """Whether a folder looks like a prepared data set; `open_prepared` checks its content."""
    return (folder / MANIFEST).is_file() and any((folder / name).exists() for name in (WINDOWS, CLASSES, SUBJECTS))


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
            window_steps=int(fields["window_steps"]),
            channels=int(fields["channels"]),
            train_windows=int(fields["train_windows"]),
            test_windows=int(fields["test_windows"]),
            sha256=str(fields["sha256"]),
        )
        expected = {name: str(fields["files"][name]) for name in (WINDOWS, CLASSES, SUBJECTS)}
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise DataError(f"{manifest}: damaged ({problem!r}); prepare the data again") from None
    _compare(dataset, expected)
    return dataset


def _compare(dataset: Dataset, expected: Mapping[str, str]) -> None:
    count = dataset.train_windows + dataset.test_windows
    shape = (count, dataset.window_steps, dataset.channels)
    sizes = {WINDOWS: 4 * count * shape[1] * shape[2], CLASSES: 4 * count, SUBJECTS: 4 * count}
    for name, size in sizes.items():
        path = dataset.folder / name
        try:
            found = path.stat().st_size
        except OSError as problem:
            raise DataError(f"{path}: cannot be read ({problem.strerror}); prepare the data again") from None
        if found != size:
            raise DataError(f"{path}: expected {size} bytes, got {found}; prepare the data again")
        if file_digest(path) != expected[name]:
            raise DataError(f"{path}: its content does not match {MANIFEST}; prepare the data again")
    if content_digest(expected, dataset.labels, shape, dataset.train_windows) != dataset.sha256:
        raise DataError(f"{dataset.folder / MANIFEST}: its figures do not match its sha256; prepare the data again")
