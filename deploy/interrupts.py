"""Ctrl-C before a command has begun ends `fab` at once and quietly. The rest is in tools/fab_begins.py."""

import os
import signal
import sys
from pathlib import Path

from cluster.errors import ExitCode
from cluster.logs.terminal import show_bugs


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
