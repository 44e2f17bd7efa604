"""Text files of numbers and names, parsed in bulk.

They are parsed line by line only to locate what is wrong with one.
"""

import io
import math
import warnings

import numpy as np
from numpy.typing import NDArray

from core.data.archive import Tree
from core.data.number_words import no_number
from core.data.recordings import LARGEST_INTEGER
from core.ground.errors import DataError

ACTIVITIES = "activity_labels.txt"
"""File of the UCI sets: the name of each activity's number."""


def parse_table(content: bytes, columns: int, where: str) -> NDArray[np.float64]:
    """Numbers of a whitespace-separated text, float64 (rows, columns).

    Raises DataError naming `where` and the line: an empty text, a row of another width, a word that
    is no number, NaN or infinity.
    """
    text = content.decode("latin-1")
    if not text.strip():
        raise DataError(
            f"{where}: expected rows of {columns} numbers, got an empty file; restore it from the"
            " original"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            table = np.loadtxt(io.StringIO(text), dtype=np.float64, comments=None, ndmin=2)
    except (ValueError, OverflowError, UserWarning) as problem:
        raise _first_problem(text, columns, where, str(problem)) from None
    if table.shape[1] != columns or not np.isfinite(table).all():
        raise _first_problem(text, columns, where, f"rows of {table.shape[1]} numbers")
    return table


def parse_integers(content: bytes, columns: int, where: str) -> NDArray[np.int32]:
    """Whole numbers from 0 to 2**31 - 1, int32 (rows, columns).

    Raises DataError as `parse_table` does.
    """
    table = parse_table(content, columns, where)
    wrong = (table != np.floor(table)) | (table < 0) | (table > LARGEST_INTEGER)
    if wrong.any():
        row, column = (int(index) for index in np.argwhere(wrong)[0])
        line = lines_of_rows(content)[row]
        raise DataError(
            f"{where}:{line}: expected a whole number from 0 to {LARGEST_INTEGER} in column"
            f" {column + 1}, got {table[row, column]:g}; correct the line"
        )
    return table.astype(np.int32)


def table_of(tree: Tree, name: str, columns: int) -> NDArray[np.float64]:
    """The numbers of a file of a set, as `parse_table` reads them."""
    return parse_table(tree.read(name), columns, f"{tree.where}: {name}")


def integers_of(tree: Tree, name: str, columns: int = 1) -> NDArray[np.int32]:
    """The whole numbers of a file of a set, as `parse_integers` reads them."""
    return parse_integers(tree.read(name), columns, f"{tree.where}: {name}")


def lines_of_rows(content: bytes) -> list[int]:
    """The one-based line of each row: blank lines are not rows."""
    return [
        number
        for number, line in enumerate(_lines(content.decode("latin-1")), start=1)
        if line.strip()
    ]


def activity_labels(tree: Tree) -> tuple[str, ...]:
    """Names of the activities, from lines such as `1 WALKING`, numbered from 1 without a gap.

    Raises DataError naming the wrong line.
    """
    labels: list[str] = []
    where = f"{tree.where}: {ACTIVITIES}"
    for number, line in enumerate(tree.read(ACTIVITIES).decode("latin-1").splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or fields[0] != str(len(labels) + 1) or fields[1] in labels:
            raise DataError(
                f"{where}:{number}: expected '{len(labels) + 1} NAME', got {line.strip()[:40]!r};"
                " correct the line"
            )
        labels.append(fields[1])
    if not labels:
        raise DataError(
            f"{where}: expected lines such as '1 WALKING', got none; restore it from the original"
        )
    return tuple(labels)


def _lines(text: str) -> list[str]:
    """Return lines as NumPy's parser sees them.

    str.splitlines also splits at vertical tabs and the like.
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _first_problem(text: str, columns: int, where: str, otherwise: str) -> DataError:
    for number, line in enumerate(_lines(text), start=1):
        fields = line.split()
        if fields and len(fields) != columns:
            return DataError(
                f"{where}:{number}: expected {columns} numbers, got {len(fields)}; a row was cut"
                " short or joined, restore the file from the original"
            )
        for word in fields:
            try:
                value = float(word.replace("_", "?"))
            except ValueError:
                return DataError(
                    f"{where}:{number}: expected a number, got {word[:40]!r}:"
                    f" {no_number(word) or 'correct the line'}"
                )
            if not math.isfinite(value):
                return DataError(
                    f"{where}:{number}: expected a finite number, got {word[:40]!r}; remove or"
                    " repair the row"
                )
    return DataError(
        f"{where}: expected rows of {columns} numbers, got {otherwise}; restore the file from the"
        " original"
    )
