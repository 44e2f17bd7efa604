"""The arrays of a data set while they are written: one pass over the rows, in constant memory."""

import errno
import hashlib
import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.archive import CHUNK_BYTES
from core.data.batch import Batch
from core.data.dataset import CLASSES, SUBJECTS, WEIGHTS, WINDOWS, Array, Dataset
from core.data.manifest import content_digest
from core.data.recordings import NO_SUBJECT

INPUTS = "inputs"
TARGETS = "targets"
GROUPS = "groups"
COUNTING = "weights"
LEFT_FREE_BYTES = 64 << 20
"""Bytes that a large set leaves free on its disk."""
LOOK_BYTES = 64 << 20
"""Bytes written between two looks at the disk."""


class _Column:
    """One array.

    A training row goes to its file, a test row to a spool, which is appended in the end.
    """

    def __init__(self, folder: Path, name: str, like: NDArray[Any]) -> None:
        self.dtype = like.dtype.newbyteorder("<")
        self.shape = like.shape[1:]
        self.path = folder / name
        self._files = ExitStack()
        self._rows = self._files.enter_context(self.path.open("wb"))
        self._spool = self._files.enter_context(self.path.with_suffix(".test").open("w+b"))
        self._digest = hashlib.sha256()

    def close(self) -> None:
        """Close its files."""
        self._files.close()

    def drop(self) -> None:
        """Close and remove its files."""
        self.close()
        self.path.unlink()
        self.path.with_suffix(".test").unlink()

    def add(self, rows: NDArray[Any], test: bool) -> None:
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
        self.close()
        self.path.with_suffix(".test").unlink()
        return self._digest.hexdigest()


class Columns:
    """All arrays of a set in `folder`.

    Batches may come in any order; the training rows are first in the end.

    Every batch has the dtypes and shapes of the first one. OSErrors of the disk pass through, and
    a set that would fill the disk is one, before it does.
    """

    def __init__(self, folder: Path, total: int = 0) -> None:
        """Expect `total` rows; 0 where that is not known."""
        self.folder = folder
        self._total = total
        self._written = 0
        self._looked = -LOOK_BYTES
        self.train_rows = self.test_rows = 0
        self.digests: dict[str, str] = {}
        """SHA-256 (hex) of each file by its name, once all are finished."""
        self.arrays: dict[str, Array] = {}
        """The arrays by what they hold, once all are finished."""
        self._columns: dict[str, _Column] = {}

    def __enter__(self) -> "Columns":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for column in self._columns.values():
            column.close()

    @property
    def rows(self) -> int:
        """Return the rows so far, of both parts."""
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
                self._columns[name] = _Column(self.folder, name, values)
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
        remaining_bytes = self._written // rows * max(0, self._total - rows)
        if max(remaining_bytes, self._written) < LOOK_BYTES:
            return
        if shutil.disk_usage(self.folder).free < remaining_bytes + LEFT_FREE_BYTES:
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
        """Give windows of classes the names that they have had from the first version."""
        if self.dataset((), "", "").holds_windows and COUNTING not in self.arrays:
            for name, file in ((INPUTS, WINDOWS), (TARGETS, CLASSES)):
                before = self.arrays[name]
                self.digests[file] = self.digests.pop(before.file)
                self.arrays[name] = Array(file, before.dtype, before.shape)

    def dataset(
        self, labels: tuple[str, ...], name: str, source: str, source_sha256: str = ""
    ) -> Dataset:
        """Return the finished set, in the folder where it was written."""
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
