"""The arrays of an `.npz`, whole or some rows at a time, and the facts that they state."""

import difflib
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from core.data.archive import (
    LARGEST_TOTAL_BYTES,
    ZIP_DAMAGE,
    one_line,
    refuse_long_list,
    refuse_unsafe,
)
from core.data.arrays import AnyArray
from core.data.batch import BATCH_BYTES, MOST_ROWS
from core.data.recordings import Report
from core.data.signals import FILTERS, LEAST_HZ, MOST_HZ, Signals
from core.ground.errors import DataError

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
LARGEST_EXAMPLES_BYTES = 2**40
"""Bytes to which an archive of examples, which are read a few at a time, may unpack."""
LARGEST_HEADER_BYTES = 10_000
LARGEST_EXAMPLE_BYTES = 256 * 2**20
"""Limit of an example, of which some are in memory; a small archive may claim larger ones."""
LONGEST_NAME = 80
HEADER_DAMAGE = (ValueError, SyntaxError, TokenError, LookupError, RecursionError, EOFError)
"""Errors that numpy raises over a member's header, which it reads as Python source."""
Arrays = Mapping[str, NDArray[Any]]


@contextmanager
def open_archive(path: Path) -> Iterator[Any]:
    """The archive, as numpy opens it; its arrays are read one at a time.

    Raises DataError, also for what its damage does to the body.
    """
    try:
        with path.open("rb") as stream:
            refuse_long_list(stream, str(path))
            stream.seek(0)
            # `np.load` would read whole what is one array, or take it for a pickle.
            opened: Any = NpzFile(stream)
            with opened as archive:
                refuse_unsafe(archive.zip, str(path), LARGEST_EXAMPLES_BYTES)
                yield archive
    except (*ZIP_DAMAGE, AttributeError, TypeError) as problem:
        raise DataError(
            f"{path}: not a complete .npz file ({one_line(problem)}); save it again with"
            " numpy.savez_compressed"
        ) from None


class ArchivedArray:
    """One array of the archive, from its first row to its last."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, name: str) -> None:
        self._where = f"{path}: {name}"
        try:
            self._stream = archive.open(f"{name}.npy")
            version = npy.read_magic(self._stream)
            headers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
            header = headers[version](self._stream, LARGEST_HEADER_BYTES)
        except HEADER_DAMAGE as problem:
            raise DataError(
                f"{self._where}: cannot be read ({one_line(problem)[:80]}); save a plain array of"
                " numbers"
            ) from None
        self.shape, self._by_columns, self.dtype = header

    def checked(self) -> "ArchivedArray":
        """Return these rows if they are examples that can be read one after the other.

        Raises DataError.
        """
        if (
            self.dtype.kind not in "fiub"
            or not self.shape
            or min(self.shape) < 0
            or 0 in self.shape[1:]
        ):
            raise DataError(
                f"{self._where}: expected (examples, ...) numbers, got {self.dtype} of shape"
                f" {self.shape}; save such"
            )
        if self._example_bytes > LARGEST_EXAMPLE_BYTES:
            raise DataError(
                f"{self._where}: an example has {self._example_bytes} bytes, at most"
                f" {LARGEST_EXAMPLE_BYTES} are read; cut the examples smaller"
            )
        if self._by_columns and len(self.shape) > 1:
            raise DataError(
                f"{self._where}: expected rows one after the other, got columns; save"
                " np.ascontiguousarray of it"
            )
        return self

    def __len__(self) -> int:
        return int(self.shape[0])

    @property
    def _example_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape[1:])

    def blocks(self, most: int = MOST_ROWS) -> Iterator[AnyArray]:
        """Yield all rows, at most `most` at a time."""
        at_once = max(1, min(most, BATCH_BYTES // self._example_bytes))
        for start in range(0, len(self), at_once):
            count = min(at_once, len(self) - start)
            content = self._stream.read(count * self._example_bytes)
            if len(content) != count * self._example_bytes:
                row = start + len(content) // self._example_bytes
                raise DataError(
                    f"{self._where}[{row}]: expected {len(self)} examples, got {row}: cut short;"
                    " save it again"
                )
            yield np.frombuffer(content, self.dtype).reshape(count, *self.shape[1:])


def load_arrays(path: Path, names: Sequence[str], report: Report) -> dict[str, AnyArray]:
    """Read those of the named arrays that are there, whole.

    Raises DataError where a required one is missing, or another has nearly the name of one that is:
    what it says would be lost without a word.
    """
    arrays: dict[str, AnyArray] = {}
    with open_archive(path) as archive:
        total = sum(archive.zip.getinfo(info).file_size for info in _members(archive, names))
        if total > LARGEST_TOTAL_BYTES:
            raise DataError(
                f"{path}: unpacks to {total} bytes, more than {LARGEST_TOTAL_BYTES}; save fewer"
                " windows, or float32"
            )
        stored = set(archive.files)
        for name in stored - set(names):
            for near in difflib.get_close_matches(name.lower(), set(names) - stored, 1, 0.9):
                raise DataError(
                    f"{path}: no array is called {name!r:.60}; save it as {near}, or leave it out"
                )
        for name in REQUIRED:
            if name not in stored:
                raise DataError(
                    f"{path}: {name} is missing (it holds"
                    f" {', '.join(archive.files) or 'nothing'}); save it with"
                    f" numpy.savez_compressed({', '.join(f'{name}=...' for name in REQUIRED)})"
                )
        present = [name for name in names if name in stored]
        for done, name in enumerate(present, start=1):
            arrays[name] = _loaded(path, archive, name)
            report("reading", done, len(present))
    return arrays


def _members(archive: Any, names: Sequence[str]) -> list[str]:
    members = {f"{name}.npy" for name in names}
    return [member for member in archive.zip.namelist() if member in members]


def _loaded(path: Path, archive: Any, name: str) -> AnyArray:
    try:
        array = archive[name]
    except (*HEADER_DAMAGE, MemoryError) as problem:
        raise DataError(
            f"{path}: {name}: cannot be read ({one_line(problem)}); save a plain array of numbers"
            " or text"
        ) from None
    # numpy gives the bytes of what does not begin as .npy does.
    if not isinstance(array, np.ndarray):
        raise DataError(
            f"{path}: {name}: not an array in .npy format; save an array of numbers or text"
        )
    return array


def fact_of(
    path: Path,
    arrays: Arrays,
    name: str,
    kind: str,
    is_valid: Callable[[Any], bool],
    expectation: tuple[str, str],
) -> Any:
    """Return the one value of an array, None where there is no such array.

    `kind` are those of its dtype; `expectation` say what is expected, and give an example. Raises
    DataError for another value.
    """
    array = arrays.get(name)
    if array is None:
        return None
    value = None
    actual = f"{array.dtype} of shape {array.shape}"
    if array.size == 1 and array.dtype.kind in kind:
        value = array.reshape(-1)[0].item()
        actual = str(value)
    if value is None or not is_valid(value):
        expected, example = expectation
        raise DataError(
            f"{path}: {name}: expected {expected}, got {actual:.60}; save"
            f" {name}=np.array({example}), or leave it out"
        )
    return value


def signals_of(path: Path, arrays: Arrays, width: int) -> Signals:
    """Return what the file says of `width` channels. Raises DataError naming array and remedy."""
    channels = _texts(path, arrays.get("channels"), "channels", width)
    if len(set(channels)) != len(channels):
        raise DataError(
            f"{path}: channels: expected different names, got {', '.join(channels):.120};"
            " rename one"
        )
    units = arrays.get("units")
    if units is not None and units.size == 1:
        units = np.repeat(units.reshape(-1), width)
    rate = fact_of(
        path,
        arrays,
        "sampling_hz",
        "fiu",
        lambda hertz: LEAST_HZ <= hertz <= MOST_HZ,
        (f"one number from {LEAST_HZ:g} to {MOST_HZ:g}", "50.0"),
    )
    filters = fact_of(
        path, arrays, "filters", "U", FILTERS.__contains__, (" or ".join(FILTERS), "'causal'")
    )
    units_of_channels = _texts(path, units, "units", width)
    return Signals(channels, units_of_channels, None if rate is None else float(rate), filters)


def _texts(path: Path, array: AnyArray | None, name: str, width: int) -> tuple[str, ...]:
    if array is None:
        return ()
    if array.dtype.kind != "U" or array.shape != (width,):
        raise DataError(
            f"{path}: {name}: expected text, one for each of {width} channels, got"
            f" {array.dtype} of shape {array.shape}; save {name}=np.array([...]) with {width} texts"
        )
    texts = tuple(str(text).strip() for text in array)
    if not all(text and len(text) <= LONGEST_NAME and text.isprintable() for text in texts):
        raise DataError(
            f"{path}: {name}: expected texts of 1 to {LONGEST_NAME} letters, got {texts!r:.120};"
            " name each"
        )
    return texts
