"""The last lines of several logs, and the new ones as they come."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

POLL_SECONDS = 0.2
_BLOCK_BYTES = 65536


class Log(Protocol):
    """A log: the name to show beside its lines, and where it lies now."""

    @property
    def name(self) -> str:
        """`worker:0`."""

    @property
    def path(self) -> Path:
        """The file; it need not be there."""


@dataclass(frozen=True)
class LogEnd:
    """The last lines of a log, and when it was written to; 0 for one that is not there."""

    name: str
    lines: Sequence[str]
    written: float


def tail(path: Path, lines: int, end: int | None = None) -> list[str]:
    """Up to `lines` last lines before the byte `end`; empty for a log that is not there."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            end = size if end is None else min(end, size)
            kept = b""
            while end > 0 and kept.count(b"\n") <= lines:
                size = min(_BLOCK_BYTES, end)
                end -= size
                log.seek(end)
                kept = log.read(size) + kept
    except FileNotFoundError:
        return []
    text = kept.decode("utf-8", errors="replace").removesuffix("\n")
    return text.split("\n")[-lines:] if lines and kept else []


class Follower:
    """Notices what is written to `logs` from now on; a log that is set aside, or new, is picked up."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._readers = [_Reader(log) for log in logs]

    def ends(self, count: int) -> list[LogEnd]:
        """Up to `count` last lines of each log as it was when the Follower was made."""
        return [reader.end(count) for reader in self._readers]

    def new_lines(self) -> list[tuple[str, str]]:
        """(name, line) of the lines completed since the last call."""
        return [(reader.name, line) for reader in self._readers for line in reader.new_lines()]


class _Reader:
    def __init__(self, log: Log) -> None:
        self.name = log.name
        self._log = log
        self._begun_with = log.path
        self._inode, self._position, self._written = self._find(self._begun_with)
        self._partial = b""
        self._first_position = self._position

    def end(self, count: int) -> LogEnd:
        return LogEnd(self.name, tail(self._begun_with, count, self._first_position), self._written)

    def new_lines(self) -> list[str]:
        path = self._log.path
        inode, size, _ = self._find(path)
        if inode != self._inode or size < self._position:  # set aside, made anew, or another run's
            self._inode, self._position, self._partial = inode, 0, b""
        if size == self._position:
            return []
        with path.open("rb") as log:
            log.seek(self._position)
            text = self._partial + log.read()
            self._position = log.tell()
        *complete, self._partial = text.split(b"\n")
        return [line.decode("utf-8", errors="replace") for line in complete]

    def _find(self, path: Path) -> tuple[int | None, int, float]:
        try:
            status = path.stat()
        except FileNotFoundError:
            return None, 0, 0.0
        return status.st_ino, status.st_size, status.st_mtime
