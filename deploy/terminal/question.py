"""A question to the person at the terminal: everything but yes means no."""

import sys

from core.errors import UsageError
from core.logs.terminal import say, visible


def require_yes(question: str, otherwise: str, yes_does: str) -> None:
    """Ask, and return after a yes.

    Raises UsageError with the line `otherwise` after anything else: the end of input and Ctrl-C
    too. Where no person can answer, the line says what `--yes` does, such as "pins".
    """
    if sys.stdin is None or not sys.stdin.isatty():  # None: closed before Python began
        raise UsageError(f"{otherwise}: `--yes` {yes_does} without a question")
    try:
        answer = input(visible(f"{question} [y/N] "))
    except (EOFError, KeyboardInterrupt):
        say("", error=True)  # the question's line has no end yet
        answer = ""
    except ValueError:  # bytes that are no text
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError(otherwise)
