"""What a person sees while a command waits for machines: a spinner on their terminal, nothing elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cluster.logs.terminal import is_animated

Say = Callable[[str], None]


@contextmanager
def waiting_for(words: str, *, quiet: bool = False) -> Iterator[Say]:
    """Say on standard error what is waited for, and each update; the line goes when the wait is over."""
    if quiet or not is_animated(sys.stderr):
        yield lambda words: None
        return
    from cluster.logs.screen import spinner

    with spinner(words, error=True) as update:
        yield update
