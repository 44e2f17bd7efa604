"""Names that a person reads as one: `walk` and `Walk `, `01` and `1`."""

import re
import unicodedata
from collections.abc import Iterable

from core.data.number_words import is_missing, is_number, number
from core.errors import DataError

_BLANK = re.compile(r"[\s_]+")
_OF_PANDAS = ("<na>", "nat")
_MARKS = " .,;:"


def refuse_alike(where: object, kind: str, names: Iterable[str]) -> None:
    """Raises DataError for two of the names that are one but for how they are written.

    They would become two classes, or one person on both sides of a split.
    """
    known: dict[str, str] = {}
    for name in sorted(names):
        other = known.setdefault(_plain(name), name)
        if other != name:
            raise DataError(
                f"{where}: {kind} {other!r:.40} and {name!r:.40} differ in capitals, blanks, marks"
                " at the end or zeros before a number alone; write each name one way"
            )


def refuse_missing(where: object, names: Iterable[str]) -> None:
    """Raises DataError for a label that says that there is none, or has a line's end.

    That is `nan` of pandas, `None` of Python, and `p;`.
    """
    for name in names:
        plain = name.strip()
        if plain.endswith(";"):
            raise DataError(f"{where}: a label {name!r:.40} has a mark at its end; remove it")
        if is_missing(plain) or plain == "None" or plain.lower() in _OF_PANDAS:
            raise DataError(
                f"{where}: a label {name!r:.40} is a missing value; name it, or remove what has it"
            )


def _plain(name: str) -> str:
    """Return a name without what differs by hand."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    plain = _BLANK.sub(" ", folded).strip(_MARKS)
    if len(name) == 1 and name.isalpha():
        return name
    if is_number(plain):
        return str(number(plain))
    return plain
