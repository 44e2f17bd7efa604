"""The cache of prepared data sets: complete folders or none, also with several processes at once.

Each process writes a folder of its own, in one pass over the rows and in constant memory, and
renames it into place. There is no lock to be left behind: two processes that prepare the same
source do the work twice, and the second finds the first one's result.
"""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from core.data.archive import CHUNK_BYTES
from core.data.arrays import AnyArray
from core.data.batch import Batch
from core.data.dataset import (
    CLASSES,
    MANIFEST,
    SUBJECTS,
    WEIGHTS,
    WINDOWS,
    Array,
    Dataset,
    content_digest,
    manifest_of,
    open_prepared,
)
from core.data.recordings import NO_SUBJECT
from core.data.signals import UNKNOWN, Signals
from core.data.split import NOT_SAID, HeldOut
from core.ground.errors import DataError
from core.ground.files import PARTIAL, folder_beside, take_name, whole_file

INPUTS = "inputs"
TARGETS = "targets"
GROUPS = "groups"
COUNTING = "weights"
LEFT_FREE_BYTES = 64 << 20
LEFT_BY_ENDLESS_BYTES = 512 << 20
"""What a large set leaves of the disk that it is written to; the second of an unknown length."""
LOOK_BYTES = 64 << 20
"""Written between two looks at the disk."""


class _Column:
    """One array.

    A training row goes to its file, a test row to a spool, which is appended in the end.
    """

    def __init__(self, path: Path, files: ExitStack, like: AnyArray) -> None:
        """Write to `path` what is like this; `files` close it in the end."""
        self.dtype = like.dtype.newbyteorder("<")
        self.shape = like.shape[1:]
        self.path = path
        self._spool_path = path.with_suffix(".test")
        self._rows = files.enter_context(path.open("wb"))
        self._spool = files.enter_context(self._spool_path.open("w+b"))
        self._digest = hashlib.sha256()

    def drop(self) -> None:
        """Remove its files."""
        self.path.unlink()
        self._spool_path.unlink()

    def add(self, rows: AnyArray, test: bool) -> None:
        """Write rows of one part."""
        content = np.ascontiguousarray(rows, self.dtype).reshape(-1).view(np.uint8).data
        for start in range(0, len(content), CHUNK_BYTES):
            piece = content[start : start + CHUNK_BYTES]
            if test:
                self._spool.write(piece)
            else:
                self._digest.update(piece)
                self._rows.write(piece)

    def finish(self) -> str:
        """Append the test rows, make all of it durable, and remove the spool.

        Returns the file's SHA-256 (hex).
        """
        self._spool.seek(0)
        while piece := self._spool.read(CHUNK_BYTES):
            self._digest.update(piece)
            self._rows.write(piece)
        self._rows.flush()
        os.fsync(self._rows.fileno())
        self._spool_path.unlink()
        return self._digest.hexdigest()


class Columns:
    """All arrays of a set in `folder`.

    Batches may come in any order; the training rows are first in the end.

    Every batch has the dtypes and shapes of the first one. OSErrors of the disk pass through, and
    a set that would fill the disk is one, before it does.
    """

    def __init__(self, folder: Path, total: int = 0) -> None:
        """`total` rows will come; 0 where that is not known."""
        self.folder = folder
        self._total = total
        self._written = 0
        self._looked = -LOOK_BYTES
        self.train_rows = self.test_rows = 0
        self.digests: dict[str, str] = {}
        """SHA-256 (hex) of each file by its name, once all are finished."""
        self.arrays: dict[str, Array] = {}
        """Arrays by what they hold, once all are finished."""
        self._columns: dict[str, _Column] = {}
        self._files = ExitStack()

    def __enter__(self) -> "Columns":
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @property
    def rows(self) -> int:
        """Rows so far, of both parts."""
        return self.train_rows + self.test_rows

    def add(self, batch: Batch) -> None:
        """Write one batch."""
        count = len(batch.x)
        groups = np.full(count, NO_SUBJECT, np.int32) if batch.groups is None else batch.groups
        rows = {INPUTS: batch.x, TARGETS: batch.y, GROUPS: groups, COUNTING: batch.weights}
        for name, values in rows.items():
            if values is None:
                continue
            if name not in self._columns:
                self._columns[name] = _Column(self.folder / name, self._files, values)
            self._columns[name].add(values, batch.test)
            self._written += values.nbytes
        self._look(self.rows + count)
        if batch.test:
            self.test_rows += count
        else:
            self.train_rows += count

    def _look(self, rows: int) -> None:
        """Raise OSError if the rows to come, or some more of them, would fill the disk."""
        if self._written - self._looked < LOOK_BYTES or not rows:
            return
        self._looked = self._written
        expected_bytes = self._written // rows * max(0, self._total - rows)
        if max(expected_bytes, self._written) < LOOK_BYTES:
            return
        expected_bytes += LEFT_FREE_BYTES if self._total else LEFT_BY_ENDLESS_BYTES
        if shutil.disk_usage(self.folder).free < expected_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def finish(self, task: str, *, standardized: bool, weighted: bool = False) -> None:
        """Complete every file and give it its name; without `weighted` there is none of weights."""
        self._task = task
        self._standardized = standardized
        if COUNTING in self._columns and not weighted:
            self._columns.pop(COUNTING).drop()
        for name, column in self._columns.items():
            column_digest = column.finish()
            dtype = column.dtype.name
            self.arrays[name] = Array(
                {GROUPS: SUBJECTS, COUNTING: WEIGHTS}.get(name, f"{name}.{dtype}"),
                dtype,
                column.shape,
            )
            self.digests[self.arrays[name].file] = column_digest
        self._name_windows()
        for name, array in self.arrays.items():
            self._columns[name].path.rename(self.folder / array.file)

    def _name_windows(self) -> None:
        """Windows of classes keep the names that they have had from the first version."""
        if self.dataset((), "", "").holds_windows and COUNTING not in self.arrays:
            for name, file in ((INPUTS, WINDOWS), (TARGETS, CLASSES)):
                before = self.arrays[name]
                self.digests[file] = self.digests.pop(before.file)
                self.arrays[name] = Array(file, before.dtype, before.shape)

    def dataset(
        self, labels: tuple[str, ...], name: str, source: str, source_sha256: str = ""
    ) -> Dataset:
        """The finished set, in the folder where it was written."""
        about: dict[str, Any] = {
            "name": name,
            "source": source,
            "folder": self.folder,
            "labels": labels,
            "train_windows": self.train_rows,
            "test_windows": self.test_rows,
            "task": self._task,
            "standardized": self._standardized,
            "inputs": self.arrays[INPUTS],
            "targets": self.arrays[TARGETS],
            "weights": self.arrays.get(COUNTING),
        }
        sha256 = content_digest(self.digests, Dataset(**about, source_sha256="", sha256=""))
        return Dataset(**about, source_sha256=source_sha256 or sha256, sha256=sha256)


SHORT_KEY = 16
"""Hexadecimal digits of the key in a folder's name: 64 bits."""


@dataclass(frozen=True)
class Origin:
    """Where a set comes from, as its manifest says it.

    Names, a hash of the source's bytes, the settings.
    """

    name: str
    source: str
    source_sha256: str = ""
    preparation: Mapping[str, Any] = field(default_factory=dict)
    held_out: HeldOut = NOT_SAID
    signals: Signals = UNKNOWN
    """Facts that the source itself states, beside the settings."""


UNFINISHED = "set"
"""What the names of unfinished folders begin with, of whatever sets: one sweep finds them all."""


@contextmanager
def partial_folder(cache: Path) -> Iterator[Path]:
    """A folder in `cache` that is gone afterwards, unless `publish_columns` gave it its name.

    Raises DataError.
    """
    with ExitStack() as stack:
        with writing_to(cache):
            cache.mkdir(parents=True, exist_ok=True)
            partial = stack.enter_context(folder_beside(cache / UNFINISHED, 0o700))
        yield partial


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Raise DataError, with a remedy, for what the disk of this folder does not take.

    The folder is one in the cache, or the cache.
    """
    try:
        yield
    except OSError as problem:
        if folder.name.endswith(PARTIAL):
            cache, room = (folder.parent, _room(folder))
        else:
            cache, room = (folder, "some room")
        raise DataError(
            f"{cache}: the prepared data cannot be written ({problem.strerror}); free {room} or"
            " choose another cache folder"
        ) from problem


def _room(partial: Path) -> str:
    try:
        written = sum(path.stat().st_size for path in partial.iterdir())
    except OSError:
        return "some room"
    if written >> 20:
        return f"more than the {written >> 20} MiB that it took"
    return "some room"


def publish_columns(
    columns: Columns, labels: tuple[str, ...], origin: Origin, folder: Path | None
) -> Dataset:
    """Writes the manifest of finished columns, gives their folder its name, and opens it.

    For None the name is that of the source and of the content. A sound data set already there is
    kept.
    """
    partial = columns.folder
    dataset = columns.dataset(labels, origin.name, origin.source, origin.source_sha256)
    leaks = [leak for leak in (origin.held_out.leak, shared_rows(dataset)) if leak]
    held_out = replace(origin.held_out, leak="; ".join(leaks))
    dataset = replace(dataset, held_out=held_out, signals=origin.signals)
    with suppress(PermissionError):  # in the cage of an export: jobs of root then copy the windows
        partial.chmod(0o755)
    manifest = manifest_of(dataset, columns.digests, origin.preparation)
    with whole_file(partial / MANIFEST) as stream:
        stream.write(json.dumps(manifest, indent=2).encode())
    place = folder or partial.parent / f"{short_name(origin.name)}-{dataset.sha256[:SHORT_KEY]}"
    _take_place(partial, place)
    return open_prepared(place)


def shared_rows(dataset: Dataset) -> str:
    """Return a line about test examples that are training examples too; empty without any."""
    train = dataset.train_windows
    digests = np.fromiter(
        (hash(row.tobytes()) for row in np.asarray(dataset.windows())), np.int64, dataset.rows
    )
    count = np.count_nonzero(np.isin(digests[train:], digests[:train]))
    if not count:
        return ""
    return (
        f"{count:,} of {dataset.test_windows:,} test {dataset.unit} are training ones too, so its"
        " figures promise too much; remove the copies"
    )


def short_name(name: str) -> str:
    """A short stand-in for a name that may hold anything a file's name may."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:40]


def _take_place(partial: Path, folder: Path) -> None:
    while True:
        try:
            take_name(partial, folder)
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return
        try:
            open_prepared(folder)
        except DataError:
            # Moved, not deleted in place: a reader either has the old files open or finds a whole
            # folder.
            with folder_beside(folder) as aside, suppress(FileNotFoundError):
                folder.rename(aside / folder.name)
        else:
            return
