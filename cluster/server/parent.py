"""Ending together with the process that started this one."""

import ctypes
import os
import signal

from cluster.errors import ClusterError

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the *thread* that started it ends (prctl(2)), even while it is stopped.

    Whoever starts roles this way must do so from a thread that lives as long as they shall. Survives execve. Raises
    ClusterError when the kernel refuses, or when the process `parent` is no longer the parent.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0) != 0:
        raise ClusterError(f"--die-with-parent: prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        raise ClusterError(f"--die-with-parent: the parent process {parent} ended while this one started")
