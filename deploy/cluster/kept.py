"""What is kept of a stream whose length somebody else decides: its beginning and its end, or all of it in a file."""

from typing import BinaryIO


class NotKeptError(Exception):
    """More came than may go into the file, or the file's disk does not take it; says which."""


class Kept:
    """At most `most_bytes`, and a line about what was left out between the two halves."""

    def __init__(self, most_bytes: int, into: BinaryIO | None = None) -> None:
        self._half_bytes, self._most_bytes, self._into = most_bytes // 2, most_bytes, into
        self._head, self._tail = bytearray(), bytearray()
        self._bytes = 0

    @property
    def left_out_bytes(self) -> int:
        """What came and is not kept."""
        return 0 if self._into is not None else self._bytes - len(self._head) - min(len(self._tail), self._half_bytes)

    def add(self, piece: bytes) -> None:
        """Take what came. Raises NotKeptError where it goes into a file."""
        self._bytes += len(piece)
        if self._into is not None:
            if self._bytes > self._most_bytes:
                raise NotKeptError(f"expected at most {self._most_bytes} bytes, more came")
            try:
                self._into.write(piece)
            except OSError as problem:
                raise NotKeptError(f"cannot be kept on this machine: {problem.strerror}") from problem
            return
        room = max(0, self._half_bytes - len(self._head))
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * self._half_bytes:  # now and then: each cut copies what stays
            del self._tail[: len(self._tail) - self._half_bytes]

    def content(self) -> bytes:
        """Both halves, with a line between them where something is missing."""
        left_out = self.left_out_bytes
        tail = bytes(self._tail[-self._half_bytes :]) if self._tail else b""
        return bytes(self._head) + (f"\n... {left_out} bytes left out\n".encode() if left_out else b"") + tail
