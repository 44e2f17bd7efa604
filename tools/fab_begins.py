"""The beginning of .venv/bin/fab.

tools/write_fab.py puts it before the import of Fabric, which takes a second.
"""

import os
import signal
from pathlib import Path
from sys import argv, path


def leave_before_anything_began(_number: int, _frame: object) -> None:
    """Ctrl-C would show the traceback of the import that it hit."""
    os._exit(130)


if (
    signal.getsignal(signal.SIGINT) is signal.default_int_handler
):  # under `nohup` or `&` it is ignored, and stays so
    signal.signal(signal.SIGINT, leave_before_anything_began)
# `env` holds Ctrl-C back while Python itself starts; one that came meanwhile arrives now.
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
if argv[1:] in (["--version"], ["-V"]):  # Fabric would show its own alone
    path.insert(0, str(Path(__file__).absolute().parents[2]))
    from pscluster.version import own_version

    print(f"pscluster {own_version()}")
    raise SystemExit
if argv[1:] in (["--help"], ["-h"]):  # as without a word: the project's commands
    del argv[1:]
