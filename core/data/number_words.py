"""Words that stand where numbers are expected.

Some are numbers, some look like numbers; an error says why they are none.
"""

import re
from typing import Any

import numpy as np

_NOT_FINITE = {"nan", "inf", "infinity"}
_NUMBER = r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?"
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,' \u00a0\u202f]\d{3})+([.,]\d+)?")
_COMMA = re.compile(_NUMBER)
_MARK = "[%°$€£]"
_UNIT = r"m?g|[kµu]?m|[mµun]?s|m/s(2|²|\^2)|(rad|deg|°)/s|[kM]?Hz|[µu]?T|bpm|°C"
_WITH_UNIT = re.compile(rf"[$€£] ?{_NUMBER}|{_NUMBER} ?{_MARK}|[+-]?(\d+[.,]\d+ ?|\d+ )({_UNIT})")
"""Number with a unit; letters behind a whole one need a blank: `4g` may be a word."""
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")


def no_number(word: str) -> str | None:
    """Return why a word that looks like a number is none; None for another word."""
    if (stem := word.rstrip(";,|")) != word and (is_number(stem) or _COMMA.fullmatch(stem)):
        return f"a {word[-1]!r} at its end; remove it from each line"
    if "," in word and _THOUSANDS.fullmatch(word) and _COMMA.fullmatch(word):
        return (
            "its comma is decimal or separates thousands; save it with decimal points and without"
            " separators"
        )
    if "," in word and _COMMA.fullmatch(word):
        return "the commas are decimal; save it with decimal points"
    if _THOUSANDS.fullmatch(word):
        return "thousands are separated; save it without separators"
    if _WITH_UNIT.fullmatch(word):
        return "a unit stands beside it; save the number alone"
    if _HEXADECIMAL.fullmatch(word):
        return "it is hexadecimal; save it in decimal"
    if (plain := word.replace("\u2212", "-").strip("'\"")) != word and is_number(plain):
        return "quotes or a minus sign of print; save plain numbers"
    if "_" in word and is_number(word.replace("_", "")):
        return "an underscore is no digit; save plain numbers"
    return None


def is_missing(word: str) -> bool:
    """Whether a value is empty, NaN or infinite."""
    return word.lower().lstrip("+-") in _NOT_FINITE or not word


def is_number(text: str) -> bool:
    """Whether a word reads as a number."""
    return bool(np.isfinite(number(text)))


def number(value: Any) -> float:
    """A value as a number; NaN for a word."""
    try:
        return float(str(value).replace("_", "?"))
    except ValueError:
        return float("nan")
