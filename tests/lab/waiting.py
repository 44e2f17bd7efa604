"""Waiting for conditions of a lab."""

import time
from collections.abc import Callable

import pytest

DEADLINE_SECONDS = 30.0


def eventually(
    condition: Callable[[], bool], what: str, deadline_seconds: float = DEADLINE_SECONDS
) -> None:
    """Returns once the condition holds, and fails the test if it doesn't."""
    deadline = time.monotonic() + deadline_seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {deadline_seconds:.0f} s: {what}", pytrace=False)
        time.sleep(0.05)
