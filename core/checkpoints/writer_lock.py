"""One writer a folder, even over NFS, where a lock can get lost after a lease without an answer."""

import os
from pathlib import Path

from core.ground.errors import ClusterError
from core.ground.files import write_refusal
from core.ground.locks import take

LOCK = ".lock"
_LONGEST = 64


class Superseded(ClusterError):
    """Another process has become the writer of the folder, so this one must write no more.

    Whatever it wrote would overwrite the other one's work.
    """


class WriterLock:
    """One writer a folder, from construction to `release`.

    The lock file holds the writer's pid and its epoch.

    The kernel releases the lock however the process ends (flock(2)). Each writer's epoch is one
    more than that of the writer before it. A storage server may give the lock of a writer that it
    could not reach to another one; the epoch shows it to the first.
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock of `folder`. Raises ClusterError that names the process that has it."""
        self._path = folder / LOCK
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise write_refusal(self._path, "cannot be locked", problem) from None
        try:
            take(self._descriptor)
            self._epoch = _epoch_in(_text(self._descriptor)) + 1
            content = f"{os.getpid()}\n{self._epoch}\n".encode()
            os.pwrite(self._descriptor, content, 0)
            os.truncate(
                self._descriptor, len(content)
            )  # last: a writer that dies here leaves an epoch behind
        except BlockingIOError:
            holder = _writer_in(_text(self._descriptor))
            os.close(self._descriptor)
            raise ClusterError(
                f"{folder}: expected to be the only one who writes there, but {holder} does: wait"
                " for it to end, or stop it"
            ) from None
        except OSError as problem:
            os.close(self._descriptor)
            raise write_refusal(self._path, "cannot be locked", problem) from None

    def refuse_if_superseded(self) -> None:
        """Raise Superseded if another process has taken the lock since.

        Raises ClusterError if the file cannot be read.
        """
        try:
            # Opened again: an NFS client looks for changes of the server at each opening.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                now = _text(descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            now = ""
        except OSError as problem:
            raise write_refusal(self._path, "cannot be read", problem) from None
        if _epoch_in(now) != self._epoch:
            if now:
                cause = _writer_in(now)
            else:
                cause = "a person or a program removed the lock"
            raise Superseded(
                f"{self._path}: this process is no longer the writer ({cause}; its epoch was"
                f" {self._epoch} and is {_epoch_in(now)}): it ends and writes nothing more there"
            )

    def release(self) -> None:
        """Release the lock.

        The file stays: without it two processes could lock two files of one name.
        """
        os.close(self._descriptor)


def _text(descriptor: int) -> str:
    return os.pread(descriptor, _LONGEST, 0).decode("ascii", errors="replace")


def _writer_in(text: str) -> str:
    tokens = text.split()
    if tokens and tokens[0].isdigit():
        return f"process {tokens[0]}"
    return "another process"


def _epoch_in(text: str) -> int:
    """0 for a file that no writer has signed, or one of a version without epochs."""
    tokens = text.split()
    if len(tokens) > 1 and tokens[1].isascii() and tokens[1].isdigit():
        return int(tokens[1])
    return 0
