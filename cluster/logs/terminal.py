"""Whether somebody watches who can be shown something that moves."""

import os
from typing import TextIO


def is_animated(stream: TextIO) -> bool:
    """A terminal that can move its cursor: neither a file nor a pipe, nor one that says it is dumb."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
