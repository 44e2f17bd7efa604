"""Files of a program between its node and the lead's: plain ones below a folder, in bounds."""

import errno
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from cluster.programs.frames import MOST_BYTES, FrameType, ProtocolError, send
from core.ground.parcel import room_on_disk

MOST_FILES = 10_000
MOST_FILE_BYTES = 1 << 30
"""The bytes that one process may send, or be sent."""


class FileTaker:
    """Writes the files that a worker sends below a folder of ours: plain names, within a bound."""

    def __init__(
        self,
        folder: Path,
        limit_of: Callable[[Sequence[str]], int] = lambda path_segments: MOST_FILE_BYTES,
    ) -> None:
        """`limit_of` takes the segments of a path: bytes that its file may have; 0 drops it."""
        self.folder = folder
        self._limit_of = limit_of
        self._descriptor = -1
        self._passes_by = False
        self._remaining_bytes = MOST_FILE_BYTES
        self._of_file = 0
        self._count = 0

    def begin(self, told: Mapping[str, Any]) -> None:
        """The next file.

        Raises ProtocolError for a name that leads elsewhere, or for too many files; OSError.
        """
        self.close()
        name = str(told.get("path", ""))
        try:
            os.fsencode(name)
        except UnicodeEncodeError:
            raise ProtocolError("a file's path") from None
        path_segments = PurePosixPath(name).parts
        plain = [
            part
            for part in path_segments
            if part not in ("/", "..", ".") and "\0" not in part and len(part) <= 255
        ]
        self._count += 1
        if self._count > MOST_FILES:
            self._count_again()
        if (
            not path_segments
            or len(plain) != len(path_segments)
            or len(path_segments) > 32
            or self._count > MOST_FILES
        ):
            raise ProtocolError("a file's path")
        self._of_file = self._limit_of(path_segments)
        self._passes_by = self._of_file == 0
        if self._passes_by:
            return
        path = self.folder.joinpath(*path_segments)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # of an earlier attempt
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640
        )

    def add(self, piece: bytes) -> None:
        """Bytes of the present file.

        Raises ProtocolError beyond the bound, OSError where the disk is full.
        """
        if self._passes_by:
            return
        self._remaining_bytes -= len(piece)
        self._of_file -= len(piece)
        if self._remaining_bytes < 0:
            self._count_again()
        if self._descriptor < 0 or self._remaining_bytes < 0 or self._of_file < 0:
            raise ProtocolError("bytes without a file, or too many")
        if room_on_disk(self.folder) < len(piece):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        while piece:
            piece = piece[os.write(self._descriptor, piece) :]

    def _count_again(self) -> None:
        """Count what is there: a long training sends its files again and again, and old ones go."""
        sizes = [path.lstat().st_size for path in self.folder.rglob("*") if path.is_file()]
        self._remaining_bytes, self._count = MOST_FILE_BYTES - sum(sizes), len(sizes)

    def close(self) -> None:
        """The file is whole."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


Sent = dict[str, tuple[int, int]]
"""Size and time of change (ns) of each file that was sent, by path."""


def send_files(connection: socket.socket, folder: Path, sent: Sent | None = None) -> int:
    """Send the plain files of `folder`, no links; how many were too many.

    With `sent` only those that have changed since they came into it, and no hidden ones, which are
    half written.
    """
    count = 0
    remaining_bytes = MOST_FILE_BYTES
    left_out = 0
    for root, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(root) / name
            try:
                if (
                    path.is_symlink()
                    or not path.is_file()
                    or (sent is not None and name.startswith("."))
                ):
                    continue
                status = path.stat()
                place = str(path.relative_to(folder))
                size = status.st_size
                mark = (status.st_size, status.st_mtime_ns)
                if sent is not None and sent.get(place) == mark:
                    continue
                if count >= MOST_FILES or size > remaining_bytes:
                    left_out += 1
                    continue
                content = path.open("rb")
            except OSError:
                continue
            with content:
                count = count + 1
                remaining_bytes = remaining_bytes - size
                send(connection, FrameType.FILE, {"path": place})
                if sent is not None:
                    sent[place] = mark
                while size > 0 and (piece := content.read(min(MOST_BYTES, size))):
                    size -= len(piece)
                    send(connection, FrameType.BYTES, piece)
    return left_out
