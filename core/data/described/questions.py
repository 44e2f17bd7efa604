"""Names of classes that are probably something else, which only a person can say."""

import re
from collections.abc import Set
from pathlib import Path

from core.errors import DataError

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


def refuse_doubtful(path: Path, classes: Set[str], people: Set[str]) -> None:
    """Raises DataError, a question, for classes that look like dates, people, numbers or damage."""
    asked = [
        (name, what)
        for what, look in _LOOKS.items()
        for name in sorted(classes)
        if re.fullmatch(look, name[-LOOKED_AT:])
    ]
    asked += [(name, "a person, too") for name in sorted(classes & people)]
    acting = sorted(filter(_ACTIVITY.fullmatch, people))
    if 2 * len(acting) >= len(people) > 1:
        asked += [(acting[0], "what the person did, and a label who it was")]
    for name, what in asked:
        raise DataError(
            f"{path}: is {name!r:.60} {what}? Say in label.words what each label means, itself or"
            " null to leave it out, or correct `files` ({number} for digits), text.end or the"
            " column"
        )
