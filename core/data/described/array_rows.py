"""Readings in an array of a MATLAB file or of an .npz: a row a reading, columns without names."""

import io
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.archive import LARGEST_TEXT_BYTES, open_zip
from core.data.described.text_rows import AT_ONCE, Rows, TextRows
from core.errors import DataError, reason_of


class ArrayRows(TextRows):
    """The readings of one array."""

    def chunks(self) -> Iterator[Rows]:
        """Yield the readings in their order. Raises DataError."""
        array = self._array()
        names = tuple(map(str, range(1, array.shape[1] + 1)))
        places = self._places(names, 1)
        for start in range(0, len(array), AT_ONCE):
            cells = [list(map(repr, row)) for row in array[start : start + AT_ONCE].tolist()]
            yield self._chunk(cells, start + 1, places, len(names))

    def _array(self) -> NDArray[Any]:
        name = str(self._form.array)
        content = self._member.read()
        try:
            found = np.asarray(loaded(content, name)[name])
        except Exception as problem:  # SciPy promises no types of errors over damaged files
            raise DataError(
                f"{self._member.where}: expected an array {name!r:.40} of a MATLAB 5 file or an"
                f" .npz, got {reason_of(problem):.80}; save it so"
            ) from None
        if found.ndim != 2 or found.dtype.kind not in "iuf":
            raise DataError(
                f"{self._member.where}: {name:.40}: expected numbers of shape (readings, columns),"
                f" got {found.dtype} {found.shape}; name another array"
            )
        return found


def loaded(content: bytes, name: str | None = None) -> Any:
    """Return the arrays of a file by name; none says that it is larger than a file may be.

    Raises what NumPy and SciPy raise.
    """
    stream = io.BytesIO(content)
    if content.startswith(b"PK"):
        open_zip(stream, "arrays", LARGEST_TEXT_BYTES).close()
        return np.load(stream, allow_pickle=False)
    from scipy.io import loadmat, whosmat

    values = max((prod(shape) for _, shape, _ in whosmat(stream)), default=0)
    if values > LARGEST_TEXT_BYTES // 8:
        raise ValueError(f"an array of {values} values")
    return loadmat(stream, variable_names=None if name is None else [name])
