"""A question to the person at the terminal: everything but yes means no."""

import sys
from collections.abc import Sequence

from core.ground.errors import UsageError
from core.logs import say, visible


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


def may_interrupt(jobs: Sequence[str], yes: bool) -> None:
    """Ask whether these jobs, which run, may be interrupted; `yes` is the answer already.

    Raises UsageError as `require_yes`.
    """
    if jobs and not yes:
        named = f"job {', '.join(jobs)} runs"
        require_yes(
            f"{named}, and this interrupts it; continue?", f"{named}: nothing done", "continues"
        )
