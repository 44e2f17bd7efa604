"""Files of a program between its node and the lead's: plain ones, by names below one folder, within bounds."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from cluster.programs.frames import MOST_BYTES, Kind, ProtocolError, send

MOST_FILES, MOST_FILE_BYTES = 10_000, 1 << 30
"""That one process may send, or be sent."""


class FileTaker:
    """Writes the files that a worker sends into a folder of ours: plain names below it, and no more than a bound."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor = -1
        self._left, self._count = MOST_FILE_BYTES, 0

    def begin(self, told: Mapping[str, Any]) -> None:
        """The next file. Raises ProtocolError for a name that leads elsewhere, or for too many files; OSError."""
        self.close()
        name = str(told.get("path", ""))
        try:
            os.fsencode(name)
        except UnicodeEncodeError:
            raise ProtocolError("a file's path") from None
        parts = PurePosixPath(name).parts
        plain = [part for part in parts if part not in ("/", "..", ".") and "\0" not in part and len(part) <= 255]
        self._count += 1
        if self._count > MOST_FILES:
            self._count_again()
        if not parts or len(plain) != len(parts) or len(parts) > 32 or self._count > MOST_FILES:
            raise ProtocolError("a file's path")
        path = self.folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # of an earlier attempt
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)

    def add(self, piece: bytes) -> None:
        """Bytes of the present file. Raises ProtocolError beyond the bound, OSError where the disk is full."""
        self._left -= len(piece)
        if self._left < 0:
            self._count_again()
        if self._descriptor < 0 or self._left < 0:
            raise ProtocolError("bytes without a file, or too many")
        while piece:
            piece = piece[os.write(self._descriptor, piece) :]

    def _count_again(self) -> None:
        """The bounds hold for what is there: a long training sends its files again and again, and old ones go."""
        sizes = [path.lstat().st_size for path in self.folder.rglob("*") if path.is_file()]
        self._left, self._count = MOST_FILE_BYTES - sum(sizes), len(sizes)

    def close(self) -> None:
        """The file is whole."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


Sent = dict[str, tuple[int, int]]
"""What was sent: size and time of change in nanoseconds, by path."""


def send_files(connection: socket.socket, folder: Path, sent: Sent | None = None) -> int:
    """Send the plain files of `folder`, no links; how many were too many.

    With `sent` only those that have changed since they came into it, and no hidden ones, which are half written.
    """
    count, left, left_out = 0, MOST_FILE_BYTES, 0
    for root, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(root) / name
            try:
                if path.is_symlink() or not path.is_file() or (sent is not None and name.startswith(".")):
                    continue
                found, place = path.stat(), str(path.relative_to(folder))
                size, mark = found.st_size, (found.st_size, found.st_mtime_ns)
                if sent is not None and sent.get(place) == mark:
                    continue
                if count >= MOST_FILES or size > left:
                    left_out += 1
                    continue
                content = path.open("rb")
            except OSError:
                continue
            with content:
                count, left = count + 1, left - size
                send(connection, Kind.FILE, {"path": place})
                if sent is not None:
                    sent[place] = mark
                while size > 0 and (piece := content.read(min(MOST_BYTES, size))):
                    size -= len(piece)
                    send(connection, Kind.BYTES, piece)
    return left_out
