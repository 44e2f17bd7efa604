"""Names that a person reads as one, such as `01` and `1`, or that are probably something else."""

import re
import unicodedata
from collections.abc import Iterable, Set

from core.data.number_words import is_missing, is_number, number
from core.ground.errors import DataError

_BLANK = re.compile(r"[\s_]+")
_OF_PANDAS = ("<na>", "nat")
_MARKS = " .,;:"
_LOOKS: dict[str, str] = {
    "a missing value": "None",
    "the mark of a line's end": ".*;",
    "a date": r"((19|20)\d\d([-_. ]?\d\d){2}|\d\d?([-_. ])\d\d?\4(19|20)?\d\d)(\D.*)?",
    "a class and a number": r".*[^\W\d].*\d",
}
LOOKED_AT = 64
"""Letters of a name."""
_ACTIVITY = re.compile(
    r"walk(ing)?|run(ning)?|sit(ting)?|stand(ing)?|jog(ging)?|lay(ing)?|lying|(up|down)?stairs"
    r"|cycling|bik(e|ing)|climb(ing)?|jump(ing)?|rest(ing)?|idle|still|driv(e|ing)",
    re.IGNORECASE,
)


def refuse_alike(where: object, kind: str, names: Iterable[str]) -> None:
    """Raises DataError for two of the names that are one but for how they are written.

    They would become two classes, or one person on both sides of a split.
    """
    spellings: dict[str, str] = {}
    for name in sorted(names):
        other = spellings.setdefault(_plain(name), name)
        if other != name:
            raise DataError(
                f"{where}: {kind} {other!r:.40} and {name!r:.40} differ in capitals, blanks, marks"
                " at the end or zeros before a number alone; write each name one way"
            )


def refuse_doubtful(where: object, classes: Set[str], people: Set[str]) -> None:
    """Raises DataError, a question, for classes that look like dates, people, numbers or damage."""
    questions = [
        (name, meaning)
        for meaning, pattern in _LOOKS.items()
        for name in sorted(classes)
        if re.fullmatch(pattern, name[-LOOKED_AT:])
    ]
    questions += [(name, "a person, too") for name in sorted(classes & people)]
    acting = sorted(filter(_ACTIVITY.fullmatch, people))
    if 2 * len(acting) >= len(people) > 1:
        questions += [(acting[0], "what the person did, and a label who it was")]
    for name, meaning in questions:
        raise DataError(
            f"{where}: is {name!r:.60} {meaning}? Say in label.words what each label means, itself"
            " or null to leave it out, or correct `files` ({number} for digits), text.end or the"
            " column"
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
