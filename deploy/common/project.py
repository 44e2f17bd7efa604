"""Where this project lies, and how its processes are started: from any folder, and killed when their parent dies."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from cluster.user_cache import user_cache

ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds `cluster/` and `deploy/`: a checkout, or the site-packages of an installed wheel."""
CHECKOUT = (ROOT / "tools" / "make_venv.sh").is_file()


def project_cache() -> Path:
    """Where wheels and locks stay between commands: `.cache` of a checkout, else the user's cache."""
    return ROOT / ".cache" if CHECKOUT else user_cache()


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """`python -m module arguments` with the Python that runs now."""
    return (sys.executable, "-m", module, *arguments)


def environment_for_any_folder() -> dict[str, str]:
    """Our environment, with which a `module_command` works from any working folder, installed or not.

    Whatever the working folder holds, a folder named `cluster` for one, stays out of it.
    """
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path), "PYTHONSAFEPATH": "1"}


_PR_SET_PDEATHSIG = 1


def die_with_parent() -> Callable[[], None]:
    """A `preexec_fn` after which the child gets SIGKILL as soon as this process is gone.

    The signal comes when the *thread* that started the child ends: start such children from the main thread.
    """
    # Looked up before the fork: between fork and exec nothing may be imported or loaded.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def before_exec() -> None:
        if prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
            os._exit(127)
        if os.getppid() != parent:  # it died before the call of prctl
            os._exit(127)
        # A shell's `command &` ignores SIGINT, and exec would hand that down: the child must be interruptible.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return before_exec
