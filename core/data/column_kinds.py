"""Whether a column of a table holds numbers or words: by all of its rows, never by the first one.

What stands between the two is refused with its line: a decimal comma, a `;` at a line's end, NaN
among words.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core.data.float32 import REMEDY, is_lost
from core.data.number_words import is_missing, is_number, no_number
from core.data.table_file import Chunk, TableFile, as_numbers
from core.errors import DataError

MOST_WORDS = 256
"""Different words of one input: each becomes a column of its own."""
KEY = "jobs.train.data.columns"


@dataclass
class _Column:
    """What the rows of one column held so far; each `first_` is a row and its value."""

    numbers: int = 0
    words: int = 0
    first: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By `word`, `like` (a word that looks like a number) and `missing`."""
    like: int = 0
    known: set[str] = field(default_factory=set)
    """Different words, one more than may be."""
    least: float = np.inf
    most: float = -np.inf

    def take(self, places: Sequence[int], values: Sequence[str]) -> None:
        for place, value in zip(places, values, strict=True):
            word = value.strip()
            if is_missing(word):
                self.first.setdefault("missing", (place, word))
            elif is_number(word):
                self.numbers += 1
                self.add(word)
            else:
                self.words += 1
                self.first.setdefault("word", (place, word))
                if no_number(word) is not None:
                    self.like += 1
                    self.first.setdefault("like", (place, word))
                self.add(word)

    def add(self, word: str) -> None:
        if len(self.known) <= MOST_WORDS:
            self.known.add(word)


class ColumnKinds:
    """Takes all rows of some columns, a chunk at a time, then says which of them hold words."""

    def __init__(
        self, table: TableFile, names: Collection[str], categories: Collection[str]
    ) -> None:
        """`categories` are words by the person's own word, whatever they look like."""
        self._table, self._categories = table, frozenset(categories)
        self._columns = {name: _Column() for name in names}

    def take(self, chunk: Chunk) -> None:
        """Look at some rows too."""
        for name, column in self._columns.items():
            given: Any = chunk.columns[name]
            if name in self._categories:
                for word in self._table.texts(chunk, name):
                    column.add(word)
                continue
            values = None
            if isinstance(given, np.ndarray):
                values = given
            elif name not in self._table.words:
                values = as_numbers(given)
            if values is None:
                column.take(chunk.places, given)
            elif len(values):
                column.numbers += len(values)
                column.least = min(column.least, float(values.min()))
                column.most = max(column.most, float(values.max()))

    def words(self) -> frozenset[str]:
        """The columns that hold words.

        Raises DataError with row and reason for one that holds both, or neither.
        """
        return frozenset(
            name for name, column in self._columns.items() if self._holds_words(name, column)
        )

    def refuse_fine(self, names: Collection[str]) -> None:
        """Raises DataError for numbers whose differences float32, which is trained on, loses."""
        for name in names:
            column = self._columns[name]
            if is_lost(column.least, column.most):
                raise DataError(
                    f"{self._table.where}: {name}: {column.least:.17g} to {column.most:.17g}"
                    f" {REMEDY}, or name the other columns in {KEY}.inputs"
                )

    def different(self, name: str) -> list[str]:
        """The words of a column, in alphabetical order. Raises DataError for more than may be."""
        words = sorted(self._columns[name].known)
        if len(words) > MOST_WORDS:
            raise DataError(
                f"{self._table.where}: {name}: expected at most {MOST_WORDS} different words, got"
                f" more; name the other columns in {KEY}.inputs"
            )
        return words

    def _holds_words(self, name: str, column: _Column) -> bool:
        if name in self._categories:
            return True
        stated = name in self._table.words
        if stated and 2 * column.numbers > column.words + column.numbers:
            raise DataError(
                f"{self._table.where}: {name}: expected words as its type says, got numbers as"
                f" text; convert the column to numbers, or name it in {KEY}.categories if these are"
                " words"
            )
        if 2 * column.like >= max(1, column.words) or (
            column.numbers and column.like and not stated
        ):
            place, word = column.first["like"]
            raise self._refused(
                place,
                name,
                f"a number, got {word!r:.60}: {no_number(word)}{self._table.words_instead}",
            )
        if column.numbers and column.words and not stated:
            place, word = column.first["word"]
            raise self._refused(
                place,
                name,
                f"a finite number, got {word!r:.60}; correct or remove the"
                f" row{self._table.words_instead}",
            )
        if "missing" in column.first:
            place, word = column.first["missing"]
            self._refuse_missing(place, name, word, column)
        return column.words > 0 or (stated and column.numbers > 0)

    def _refuse_missing(self, place: int, name: str, word: str, column: _Column) -> None:
        if column.words and not word:
            raise self._refused(place, name, "a word, got nothing; fill it in, or remove the row")
        if column.words:
            raise self._refused(
                place,
                name,
                f"a word, got {word!r}; fill it in, or remove the row{self._table.words_instead}",
            )
        if column.numbers:
            raise self._refused(
                place, name, f"a finite number, got {word!r}; correct or remove the row"
            )
        raise self._refused(
            place,
            name,
            f"a number or a word, got {word!r}, and no other in any row; name the other columns in"
            f" {KEY}.inputs",
        )

    def _refused(self, place: int, name: str, what: str) -> DataError:
        return DataError(f"{self._table.place(place)}: {name}: expected {what}")
