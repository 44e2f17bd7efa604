"""A file of named columns, read a chunk of rows at a time; what is common to CSV and Parquet."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data.recordings import Report, silent
from cluster.errors import DataError

VALUES_AT_ONCE, MOST_ROWS = 200_000, 2048
"""Of one chunk: values in all its columns, and rows, the fewer of both."""


@dataclass(frozen=True)
class Chunk:
    """Some rows: where each stands in the file, and its values by column, as text or float64."""

    places: Sequence[int]
    columns: Mapping[str, Sequence[str] | NDArray[np.float64]]


class TableFile(ABC):
    """One file. `words` are the columns whose values are text, `names` all columns in their order."""

    where: str
    words_instead = ", or name the column in jobs.train.data.columns.categories if it holds words"
    """What else a person may do about a word in a column of numbers."""
    names: tuple[str, ...]
    words: frozenset[str]

    @abstractmethod
    def place(self, number: int) -> str:
        """How messages name a row, by its number in `Chunk.places`."""

    @abstractmethod
    def chunks(self, columns: Sequence[str], report: Report = silent) -> Iterator[Chunk]:
        """All rows, some at a time, of these columns. Raises DataError naming the row."""

    def numbers(self, chunk: Chunk, name: str) -> NDArray[np.float64]:
        """A column as float64 (rows,). Raises DataError naming the row of what is no finite float32 number."""
        given = chunk.columns[name]
        try:
            values = np.asarray(given, np.float64)
        except ValueError:
            values = np.array([_number(value) for value in given])
        with np.errstate(over="ignore"):
            wrong = np.flatnonzero(~np.isfinite(values.astype(np.float32)))
        if wrong.size:
            row = int(wrong[0])
            raise DataError(
                f"{self.place(chunk.places[row])}: {name}: expected a finite number, got {_shown(given[row])}; correct "
                f"or remove the row{self.words_instead}"
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
                raise DataError(f"{place}: {name}: expected a word, got nothing; fill it in, or remove the row")
        return found


def rows_at_once(columns: int, values: int = VALUES_AT_ONCE) -> int:
    """Rows of a chunk with so many columns, and at most so many values."""
    return max(1, min(MOST_ROWS, values // max(1, columns)))


def is_number(text: str) -> bool:
    """Whether a word reads as a number."""
    return bool(np.isfinite(_number(text)))


def _number(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        return float("nan")


def _shown(value: Any) -> str:
    return f"{value!r:.60}" if isinstance(value, str) else f"{float(value):g}"
