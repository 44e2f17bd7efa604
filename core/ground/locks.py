"""Locks that the kernel gives back however their process ends (flock(2))."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from core.ground.waiting import until

_PROBE_SECONDS = 1.0
"""How long to try: a caller of `held_by` holds the lock for an instant too."""


class LockHeldError(Exception):
    """Another process holds the lock; `pid` is None where the file does not say which."""

    def __init__(self, path: Path, pid: int | None) -> None:
        super().__init__(f"{path} is held by process {pid}")
        self.pid = pid


class FileLock:
    """An exclusive lock on `path`, with the holder's pid in the file. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises LockHeldError when another process has it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not until(lambda: could_take(self._descriptor), _PROBE_SECONDS):
            pid = _read_pid(self._descriptor)
            os.close(self._descriptor)
            raise LockHeldError(path, pid)
        os.truncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def __enter__(self) -> "FileLock":
        return self

    def __exit__(self, *_: object) -> None:
        # The file stays: removing it would let two processes lock two files of one name.
        os.truncate(self._descriptor, 0)
        os.close(self._descriptor)


def held_by(path: Path) -> int | None:
    """Pid of the process that holds the lock on `path`, None without one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        # A lock that was taken a moment ago is not signed yet.
        if until(lambda: could_take(descriptor) or _read_pid(descriptor), _PROBE_SECONDS) is True:
            return None
        return _read_pid(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of the file, which is made where there is none.

    Raises OSError; BlockingIOError where another process holds it and this one may not `wait`.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        take(descriptor, wait=wait)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_folder(path: Path) -> Iterator[int]:
    """Hold the lock of a folder, also in forked children; its descriptor.

    Raises OSError; BlockingIOError where another process holds it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        take(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def take(descriptor: int, *, wait: bool = False, shared: bool = False) -> None:
    """Lock an open file or folder until its last descriptor is closed.

    Many processes may hold it `shared`. Raises BlockingIOError where it is held otherwise and this
    process may not `wait`; OSError on a file system without locks.
    """
    operation = fcntl.LOCK_EX
    if shared:
        operation = fcntl.LOCK_SH
    if not wait:
        operation |= fcntl.LOCK_NB
    fcntl.flock(descriptor, operation)


def could_take(descriptor: int) -> bool:
    """Lock an open file, and return whether that succeeded. Raises OSError as `take` does."""
    try:
        take(descriptor)
    except BlockingIOError:
        return False
    return True


def _read_pid(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).decode("ascii", errors="replace").strip()
    if text.isascii() and text.isdigit() and len(text) <= 7:
        return int(text)
    return None
