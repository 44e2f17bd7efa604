"""A file of named columns, read a chunk of rows at a time."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.number_words import no_number, number
from core.data.recordings import Report, silent
from core.errors import DataError

VALUES_AT_ONCE = 200_000
MOST_ROWS = 2048
"""The largest chunk: values in all its columns, and rows, the fewer of both."""


@dataclass(frozen=True)
class Chunk:
    """Some rows: where each stands in the file, and its values by column, as text or float64."""

    places: Sequence[int]
    columns: Mapping[str, Sequence[str] | NDArray[np.float64]]


class TableFile(ABC):
    """One file. `names` are all columns in their order."""

    where: str
    names: tuple[str, ...]

    @abstractmethod
    def place(self, number: int) -> str:
        """How messages name a row, by its number in `Chunk.places`."""

    @abstractmethod
    def chunks(self, columns: Sequence[str], report: Report = silent) -> Iterator[Chunk]:
        """All rows, some at a time, of these columns. Raises DataError naming the row."""

    def numbers(self, chunk: Chunk, name: str) -> NDArray[np.float64]:
        """A column as float64 (rows,).

        Raises DataError naming the row of what is no finite float32 number.
        """
        given = chunk.columns[name]
        values = as_numbers(given)
        if values is None:
            values = np.array([number(value) for value in given])
        with np.errstate(over="ignore"):
            wrong = np.flatnonzero(~np.isfinite(values.astype(np.float32)))
        if wrong.size:
            row = int(wrong[0])
            if isinstance(given[row], str):
                reason = no_number(given[row].strip())
            else:
                reason = None
            raise DataError(
                f"{self.place(chunk.places[row])}: {name}: expected a finite number, got"
                f" {_shown(given[row])}{f': {reason}' if reason else '; correct or remove the row'}"
            )
        return values


def rows_at_once(columns: int, values: int = VALUES_AT_ONCE) -> int:
    """Rows of a chunk with so many columns, and at most so many values."""
    return max(1, min(MOST_ROWS, values // max(1, columns)))


def as_numbers(values: Any) -> NDArray[np.float64] | None:
    """All values as numbers, (rows,), finite or not; None where one is a word."""
    if not isinstance(values, np.ndarray) and "_" in "".join(values):
        return None  # Python reads 1_0 as 10
    try:
        found = np.asarray(values, np.float64)
    except ValueError:
        return None
    if np.isfinite(found).all():
        return found
    return None


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f"{value!r:.60}"
    return f"{float(value):g}"
