"""Rows that wait: the latest ones in memory, all others in a temporary file without a name."""

import os
import tempfile
import weakref
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from core.errors import DataError

IN_MEMORY_BYTES = 16 * 2**20
"""Of rows; more of them go to the file."""
LARGE_FILES = "/var/tmp"
"""Where they are meant to lie: /tmp may be memory."""


class Kept:
    """Rows that a spool keeps."""

    __slots__ = ("begin", "dtype", "rows", "shape")

    def __init__(self, rows: NDArray[Any]) -> None:
        self.rows: NDArray[Any] | None = rows
        self.begin = 0
        self.shape = rows.shape
        self.dtype = rows.dtype


class Spool:
    """Arrays in the order in which they were given, each found by what `keep` returned for it."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._latest: list[Kept] = []
        self._bytes = 0

    def keep(self, rows: NDArray[Any]) -> Kept:
        """Keep an array of at least one dimension. Raises DataError for a full disk."""
        kept = Kept(np.ascontiguousarray(rows))
        self._latest.append(kept)
        self._bytes += rows.nbytes
        if self._bytes > IN_MEMORY_BYTES:
            self._write()
        return kept

    def rows(self, parts: Sequence[Kept]) -> NDArray[Any]:
        """Return arrays as one, along the first axis. Raises DataError."""
        return np.concatenate([self._read(kept) for kept in parts])

    def _read(self, kept: Kept) -> NDArray[Any]:
        if kept.rows is not None:
            return kept.rows
        assert self._file is not None
        found = np.empty(kept.shape, kept.dtype)
        self._file.seek(kept.begin)
        self._file.readinto(found.view(np.uint8).reshape(-1).data)  # type: ignore[attr-defined]
        return found

    def _write(self) -> None:
        folder = os.environ.get("TMPDIR", LARGE_FILES)
        try:
            if self._file is None:
                if not os.access(folder, os.W_OK):
                    folder = tempfile.gettempdir()
                self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
                weakref.finalize(self, self._file.close)
            place = self._file.seek(0, os.SEEK_END)
            for kept in self._latest:
                assert kept.rows is not None
                self._file.write(kept.rows.data)
                kept.begin = place
                place += kept.rows.nbytes
                kept.rows = None
            self._file.flush()
        except OSError as problem:
            raise DataError(
                f"{folder}: cannot keep the samples of these recordings ({problem.strerror}); make"
                " room, or set TMPDIR to a folder with more"
            ) from None
        self._latest = []
        self._bytes = 0
