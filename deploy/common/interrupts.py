"""Signals that interrupt: quietly before a command has begun, then as KeyboardInterrupt.

A bug is shown harmlessly. While a command waits, a terminal alone shows a spinner.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType

from core.ground.errors import ExitCode
from core.logs import is_animated, say

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def leave_before_anything_began(_number: int, _frame: object) -> None:
    """Handle a signal before Fabric is imported; `.venv/bin/fab` has the same handler."""
    os._exit(ExitCode.CANCELLED)


def quiet_until_a_command_begins() -> None:
    """What holds from reading the fabfile on, also in a `fab` that `make .venv` did not write.

    Another program that reads it keeps its own handlers.
    """
    if Path(sys.argv[0]).name != "fab":
        return
    show_bugs()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave_before_anything_began)


def a_command_begins() -> None:
    """Make Ctrl-C a KeyboardInterrupt, unless it is ignored (`nohup`, a shell's `&`)."""
    handler = signal.getsignal(signal.SIGINT)
    if getattr(handler, "__name__", "") == leave_before_anything_began.__name__:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupts() -> list[signal.Signals]:
    """The signals that interrupt a job.

    SIGINT is one also under a shell's `&`, which ignores it.
    """
    # nohup ignores SIGHUP, and means it.
    return [
        n for n in _INTERRUPTS if n == signal.SIGINT or signal.getsignal(n) is not signal.SIG_IGN
    ]


@contextmanager
def handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Inside, every signal of `interrupts` goes to the handler. Main thread only."""
    before = {number: signal.signal(number, handler) for number in interrupts()}
    try:
        yield
    finally:
        for number, other in before.items():
            signal.signal(number, other)


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, every signal of `interrupts` raises KeyboardInterrupt. Main thread only."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with handled(interrupt):
        yield


def show_bugs() -> None:
    """Show tracebacks as any other text: a bug's message may quote what was read."""
    sys.excepthook = _show_bug
    threading.excepthook = lambda bug: _show_bug(bug.exc_type, bug.exc_value, bug.exc_traceback)


def _show_bug(
    kind: type[BaseException], problem: BaseException | None, trace: TracebackType | None
) -> None:
    say("".join(traceback.format_exception(kind, problem, trace)), error=True, end="")


Say = Callable[[str], None]


@contextmanager
def waiting_for(purpose: str, *, quiet: bool = False) -> Iterator[Say]:
    """Say on standard error what the wait is for, and each update; the line goes at the end."""
    if quiet or not is_animated(sys.stderr):
        yield lambda update: None
        return
    from core.logs.screen import spinner

    with spinner(purpose, error=True) as update:
        yield update
