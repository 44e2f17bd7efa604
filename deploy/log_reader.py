"""The last lines of several logs, and the new ones as they come."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.services import LogFile

_POLL_SECONDS = 0.2
_BLOCK_BYTES = 65536


def tail(path: Path, lines: int) -> list[str]:
    """Up to `lines` last lines; empty for a log that is not there."""
    try:
        with path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            kept = b""
            while end > 0 and kept.count(b"\n") <= lines:
                size = min(_BLOCK_BYTES, end)
                end -= size
                log.seek(end)
                kept = log.read(size) + kept
    except FileNotFoundError:
        return []
    return kept.decode("utf-8", errors="replace").splitlines()[-lines:] if lines else []


class Follower:
    """Notices what is written to `logs` from now on; a log that is set aside, or new, is picked up."""

    def __init__(self, logs: Sequence[LogFile]) -> None:
        self._readers = [_Reader(log) for log in logs]

    def new_lines(self) -> list[tuple[str, str]]:
        """(name, line) of the lines completed since the last call."""
        return [(reader.name, line) for reader in self._readers for line in reader.new_lines()]

    def follow(self) -> Iterator[tuple[str, str]]:
        """The same, for ever."""
        while True:
            lines = self.new_lines()
            yield from lines
            if not lines:
                time.sleep(_POLL_SECONDS)


class _Reader:
    def __init__(self, log: LogFile) -> None:
        self.name = log.name
        self._path = log.path
        self._inode, self._position = self._find()
        self._partial = b""

    def new_lines(self) -> list[str]:
        inode, size = self._find()
        if inode != self._inode or size < self._position:  # set aside, or made anew
            self._inode, self._position, self._partial = inode, 0, b""
        if size == self._position:
            return []
        with self._path.open("rb") as log:
            log.seek(self._position)
            text = self._partial + log.read()
            self._position = log.tell()
        *complete, self._partial = text.split(b"\n")
        return [line.decode("utf-8", errors="replace") for line in complete]

    def _find(self) -> tuple[int | None, int]:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None, 0
        return status.st_ino, status.st_size
