"""What a person sees while a command waits for machines: a spinner on their terminal alone."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from core.logs import is_animated

Say = Callable[[str], None]


@contextmanager
def waiting_for(purpose: str, *, quiet: bool = False) -> Iterator[Say]:
    """Say on standard error what the wait is for, and each update; the line goes at the end."""
    if quiet or not is_animated(sys.stderr):
        yield lambda words: None
        return
    from core.logs.screen import spinner

    with spinner(purpose, error=True) as update:
        yield update
