"""A recording in an .npz: `times` in seconds, (n,); `acceleration` and `rotation`, (n, 3).

A few rows are read at a time.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from core.data.npz import ArchivedArray
from core.data.npz_windows import open_archive
from core.ground.errors import DataError
from recognise.lines import Block

ARRAYS = ("times", "acceleration", "rotation")
_AT_ONCE = 16_384


def is_recording(name: str) -> bool:
    """Return whether the file is an .npz of a recording, not one of windows."""
    try:
        with open_archive(Path(name)) as archive:
            return ARRAYS[0] in archive.files
    except (OSError, DataError):
        return False


def _checked(path: Path, archive: zipfile.ZipFile, name: str) -> ArchivedArray:
    try:
        return ArchivedArray(path, archive, name).checked()
    except DataError as problem:
        if name != ARRAYS[0]:
            raise
        raise DataError(
            f"{problem}, in seconds: of datetimes (t - t[0]) / np.timedelta64(1, 's')"
        ) from None


def blocks(path: Path) -> Iterator[Block]:
    """Return the readings in order. Raises DataError naming the array and the remedy."""
    with open_archive(path) as archive:
        missing = [name for name in ARRAYS if name not in archive.files]
        if missing:
            raise DataError(
                f"{path}: {missing[0]} is missing; save it with "
                f"numpy.savez_compressed({', '.join(f'{name}=...' for name in ARRAYS)})"
            )
        arrays = [_checked(path, archive.zip, name) for name in ARRAYS]
        count = (*arrays[0].shape, 0)[0]
        for name, array, shape in zip(
            ARRAYS, arrays, ((count,), (count, 3), (count, 3)), strict=True
        ):
            if array.shape != shape:
                raise DataError(
                    f"{path}: {name}: expected shape {shape}, got {array.shape}; save a row a"
                    " reading"
                )
        done = 0
        for times, *values in zip(*(array.blocks(_AT_ONCE) for array in arrays), strict=True):
            done += len(times)
            rows = np.concatenate([times[:, np.newaxis], *values], axis=1, dtype=np.float64)
            yield Block(rows, (), done / count)
