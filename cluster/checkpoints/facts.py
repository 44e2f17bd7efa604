"""Facts as JSON that every reader takes, and back: equal to what went in, NaN and infinity included.

JSON has no word for these three, and a loss that is none is no reason to lose the run: they are stored as
`{"$float": "nan"}`, `"inf"` and `"-inf"`.
"""

import math
from collections.abc import Mapping
from typing import Any

WORD = "$float"
"""The only key of an object that stands for a number; as a key of the facts it is refused."""

DEEPEST = 64
"""Levels of nesting that facts may have."""

_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def to_json(value: Any, place: str = "facts", level: int = 0) -> Any:
    """`value` in JSON's own types. Raises ValueError naming the place of what would not come back equal."""
    if level > DEEPEST:
        raise ValueError(f"{place}: expected at most {DEEPEST} levels, got more: store it flatter")
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            # float(): NumPy's float64 is one too, and must not reach the file as anything else.
            return float(value) if math.isfinite(value) else {WORD: str(float(value))}
        case Mapping():
            for key in value:
                if not isinstance(key, str) or key == WORD:
                    raise ValueError(f"{place}: expected text other than {WORD!r} as a key, got {key!r}: rename it")
            return {key: to_json(inner, f"{place}.{key}", level + 1) for key, inner in value.items()}
        case list() | tuple():
            return [to_json(inner, f"{place}[{index}]", level + 1) for index, inner in enumerate(value)]
        case _:
            raise ValueError(
                f"{place}: expected what JSON has, got {type(value).__name__}: convert it, or make it a tensor"
            )


def from_json(value: Any, level: int = 0) -> Any:
    """What `to_json` was given. Raises ValueError where it cannot have written that."""
    if level > DEEPEST:
        raise ValueError(f"facts of more than {DEEPEST} levels")
    match value:
        case dict() if WORD in value:
            if len(value) != 1 or not isinstance(value[WORD], str) or value[WORD] not in _NUMBERS:
                raise ValueError(f"a {WORD!r} in the facts that is none of {', '.join(_NUMBERS)}")
            return _NUMBERS[value[WORD]]
        case dict():
            return {key: from_json(inner, level + 1) for key, inner in value.items()}
        case list():
            return [from_json(inner, level + 1) for inner in value]
        case _:
            return value
