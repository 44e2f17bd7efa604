"""Comparison of a large answer with the parts of it that a test names."""

from math import isclose
from typing import Any


def part(found: Any, like: Any) -> Any:
    """What of `found` has a place in `like`; a fraction is like another up to rounding."""
    if isinstance(like, dict) and isinstance(found, dict):
        return {key: part(found.get(key, "missing"), inner) for key, inner in like.items()}
    if isinstance(like, list) and isinstance(found, list | tuple) and len(found) == len(like):
        return [part(one, inner) for one, inner in zip(found, like, strict=True)]
    if isinstance(found, float) and isinstance(like, float) and isclose(found, like, rel_tol=1e-6):
        return like
    return found
