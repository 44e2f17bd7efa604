"""Ctrl-C before a command has begun ends `fab` quietly (see tools/fab_begins.py); a bug is shown harmlessly."""

import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import TracebackType

from cluster.errors import ExitCode
from cluster.logs.terminal import say


def leave_before_anything_began(_number: int, _frame: object) -> None:
    """The handler until then; of the same name in `.venv/bin/fab`, which has it before Fabric is imported."""
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
    """From now on Ctrl-C is a KeyboardInterrupt, unless it is ignored (`nohup`, a shell's `&`)."""
    handler = signal.getsignal(signal.SIGINT)
    if getattr(handler, "__name__", "") == leave_before_anything_began.__name__:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def show_bugs() -> None:
    """Tracebacks of this process are shown as any other text: a bug's message may quote what was read."""
    sys.excepthook = _shown
    threading.excepthook = lambda bug: _shown(bug.exc_type, bug.exc_value, bug.exc_traceback)


def _shown(kind: type[BaseException], problem: BaseException | None, trace: TracebackType | None) -> None:
    say("".join(traceback.format_exception(kind, problem, trace)), error=True, end="")
