"""Readings in an array of a MATLAB file or of an .npz: a row a reading, columns without names."""

import io
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.archive import LARGEST_TEXT_BYTES, open_zip
from core.data.described.text_rows import Rows, TextRows
from core.ground.errors import DataError, reason_of


class ArrayRows(TextRows):
    """The readings of one array."""

    def chunks(self) -> Iterator[Rows]:
        """Yield the readings in their order. Raises DataError."""
        name = str(self._form.array)
        content = self._member.read()
        try:
            array = np.asarray(loaded(content, LARGEST_TEXT_BYTES, name)[name])
        except Exception as problem:  # SciPy promises no types of errors over damaged files
            raise DataError(
                f"{self._member.where}: expected an array {name!r:.40} of a MATLAB 5 file or an"
                f" .npz, got {reason_of(problem):.80}; save it so"
            ) from None
        if array.ndim != 2 or array.dtype.kind not in "iuf":
            raise DataError(
                f"{self._member.where}: {name:.40}: expected numbers of shape (readings, columns),"
                f" got {array.dtype} {array.shape}; name another array"
            )
        yield from self._of_table(tuple(map(str, range(1, array.shape[1] + 1))), cells_of(array))


def cells_of(array: NDArray[Any]) -> Iterator[list[str]]:
    """Yield the values of each row of a table, (rows, columns), as a text has them."""
    return (list(map(repr, row.tolist())) for row in array)


def loaded(content: bytes, most_bytes: int, name: str | None = None) -> Mapping[str, Any]:
    """Return the arrays of a file by name; none says that it is larger than `most_bytes`.

    Raises what NumPy and SciPy raise.
    """
    stream = io.BytesIO(content)
    if content.startswith(b"PK"):
        open_zip(stream, "arrays", most_bytes).close()
        archive: Mapping[str, Any] = np.load(stream, allow_pickle=False)
        return archive
    from scipy.io import loadmat, whosmat

    values = max((prod(shape) for _, shape, _ in whosmat(stream)), default=0)
    if values > most_bytes // 8:
        raise ValueError(f"an array of {values} values")
    arrays: Mapping[str, Any] = loadmat(stream, variable_names=None if name is None else [name])
    return arrays
