"""Children that the kernel kills when their parent dies, however it dies (PR_SET_PDEATHSIG of prctl(2))."""

import ctypes
import os
import signal
from collections.abc import Callable

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
