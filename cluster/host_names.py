"""What the name of a host may be."""

import re

_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_LONGEST = 253


def is_host_name(text: str) -> bool:
    """RFC 1123, with the underscore that some routers' names have."""
    return len(text) <= _LONGEST and all(map(_LABEL.fullmatch, text.removesuffix(".").split(".")))
