"""Waits: until something holds, at most so long; and longer after each failure."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Value = TypeVar("Value")

POLL_SECONDS = 0.02

MOST_DOUBLINGS = 30
"""The wait has reached any ceiling by then, and a power of more failures would overflow."""


@dataclass(frozen=True)
class Backoff:
    """Waits that double with each failure, up to a ceiling."""

    first_seconds: float = 0.5
    longest_seconds: float = 30.0

    def seconds(self, failures: int) -> float:
        """Return the wait after this many failures in a row, one or more."""
        doublings = min(failures - 1, MOST_DOUBLINGS)
        return min(self.longest_seconds, self.first_seconds * 2.0**doublings)


def until(
    condition: Callable[[], Value], seconds: float, poll_seconds: float = POLL_SECONDS
) -> Value:
    """Ask for `condition` until it is true or `seconds` are over; return its last value.

    It is asked once at least, and once more after the last pause.
    """
    deadline = time.monotonic() + seconds
    while True:
        is_last = time.monotonic() > deadline
        value = condition()
        if value or is_last:
            return value
        time.sleep(poll_seconds)


def pause(seconds: float) -> None:
    """Wait this long, in a loop that more than one condition ends."""
    time.sleep(seconds)
