"""Rows that wait: in memory while they are few, in a temporary file without a name then."""

import os
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.ground.errors import DataError

IN_MEMORY_BYTES = 16 * 2**20
"""Bytes of rows; more go to the file."""
LARGE_FILES = "/var/tmp"
"""The folder for large files: /tmp may be memory."""


class SpooledRows(NamedTuple):
    """Where a spool keeps rows."""

    begin: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Spool:
    """Arrays in the order in which they were given, each found by what `keep` returned for it."""

    def __init__(self) -> None:
        folder = os.environ.get("TMPDIR", LARGE_FILES)
        self._folder = folder if os.access(folder, os.W_OK) else tempfile.gettempdir()
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES, dir=self._folder)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def keep(self, rows: NDArray[Any]) -> SpooledRows:
        """Keep an array of at least one dimension. Raises DataError for a full disk."""
        try:
            begin = self._file.seek(0, os.SEEK_END)
            self._file.write(np.ascontiguousarray(rows).data)
            self._file.flush()
        except OSError as problem:
            raise DataError(
                f"{self._folder}: cannot keep the samples of these recordings"
                f" ({problem.strerror}); make room, or set TMPDIR to a folder with more"
            ) from None
        return SpooledRows(begin, rows.shape, rows.dtype)

    def rows(self, blocks: Sequence[SpooledRows]) -> NDArray[Any]:
        """Return arrays as one, along the first axis."""
        return np.concatenate([self._read(block) for block in blocks])

    def _read(self, block: SpooledRows) -> NDArray[Any]:
        self._file.seek(block.begin)
        size = int(np.prod(block.shape)) * block.dtype.itemsize
        return np.frombuffer(self._file.read(size), block.dtype).reshape(block.shape)
