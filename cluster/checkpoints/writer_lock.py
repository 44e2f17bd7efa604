"""One writer a folder: a lock that the kernel gives back however its process ends (flock(2))."""

import fcntl
import os
from pathlib import Path

from cluster.atomic_write import refused
from cluster.errors import ClusterError

LOCK = ".lock"


class WriterLock:
    """Held by this process from construction to `release`; the file holds its pid."""

    def __init__(self, folder: Path) -> None:
        """Take the lock of `folder`. Raises ClusterError naming the process that has it."""
        path = folder / LOCK
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise refused(path, "cannot be locked", problem) from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = _signed(self._descriptor)
            os.close(self._descriptor)
            raise ClusterError(
                f"{folder}: expected to be the only one who writes there, but {holder} does: wait for it to end, or "
                "stop it"
            ) from None
        except OSError as problem:
            os.close(self._descriptor)
            raise refused(path, "cannot be locked", problem) from None

    def release(self) -> None:
        """Give the lock back. The file stays: removing it would let two processes lock two files of one name."""
        os.close(self._descriptor)


def _signed(descriptor: int) -> str:
    text = os.pread(descriptor, 32, 0).decode("ascii", errors="replace").strip()
    return f"process {text}" if text.isdigit() else "another process"
