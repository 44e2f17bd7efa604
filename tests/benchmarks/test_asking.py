"""A child that is asked answers, or the reason why it does not is said."""

import sys

import pytest

from benchmarks.asking import Asked, ChildFailedError


@pytest.mark.parametrize(
    ("program", "seconds", "words"),
    [
        ("raise SystemExit(3)", 60.0, "short-lived ended with status 3"),
        ("raise RuntimeError('no such cluster')", 60.0, "RuntimeError: no such cluster"),
        ("while True: pass", 0.2, r"not done after 0 s"),
    ],
)
def test_a_child_that_ends_fails_or_hangs_is_told(program: str, seconds: float, words: str) -> None:
    with (
        Asked("short-lived", [sys.executable, "-c", program], seconds) as child,
        pytest.raises(ChildFailedError, match=words),
    ):
        child.ask({"steps": 1})
