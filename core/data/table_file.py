"""A file of named columns, read a chunk of rows at a time; what is common to CSV and Parquet."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.number_words import no_number, number
from core.data.recordings import Report, silent
from core.errors import DataError

INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__")
"""What pandas calls the index of the rows where it has no name of its own."""
VALUES_AT_ONCE = 200_000
MOST_ROWS = 2048
"""The largest chunk: values in all its columns, and rows, the fewer of both."""


@dataclass(frozen=True)
class Chunk:
    """Some rows: where each stands in the file, and its values by column, as text or float64."""

    places: Sequence[int]
    columns: Mapping[str, Sequence[str] | NDArray[np.float64]]


class TableFile(ABC):
    """One file. `names` are all columns in their order.

    `words` are those that the file itself states to be text, and `index` those that it states to
    number its rows.
    """

    where: str
    words_instead = ", or name the column in jobs.train.data.columns.categories if it holds words"
    """What else a person may do about a word in a column of numbers."""
    names: tuple[str, ...]
    words: frozenset[str] = frozenset()
    index: frozenset[str] = frozenset()

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

    def texts(self, chunk: Chunk, name: str) -> list[str]:
        """A column as words. Raises DataError naming the row of an empty one."""
        given = chunk.columns[name]
        if isinstance(given, np.ndarray):
            given = [f"{value:.17g}" for value in given.tolist()]
        found = [str(value).strip() for value in given]
        for row, word in enumerate(found):
            if not word:
                place = self.place(chunk.places[row])
                raise DataError(
                    f"{place}: {name}: expected a word, got nothing; fill it in, or remove the row"
                )
        return found


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
