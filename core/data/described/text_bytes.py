"""The bytes of a text on their way to its lines: counted, and bounded where a line never ends."""

import io
from typing import IO

from core.data.archive import SUSPICIOUS_BYTES, SUSPICIOUS_RATIO
from core.errors import DataError

LONGEST_LINE_BYTES = 16 * 1024
"""A thousand columns of sixteen characters."""
AT_ONCE_BYTES = 8 * 1024


class TextBytes(io.BufferedIOBase):
    """What a text is decoded from."""

    def __init__(self, raw: IO[bytes], where: str, stored_bytes: int) -> None:
        """`stored_bytes` is what it takes where it lies, before gzip is undone."""
        self._raw = raw
        self.name = where
        self._most = max(SUSPICIOUS_BYTES, SUSPICIOUS_RATIO * stored_bytes)
        self._line_begin = 0
        self.done = 0
        """Bytes that were read."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes, as `read1` does: a decoder asks for no more."""
        return self.read1()

    def readable(self) -> bool:
        """Return true, as a stream of bytes does."""
        return True

    def read1(self, size: int = AT_ONCE_BYTES, /) -> bytes:
        """Return the next bytes. Raises DataError for a line, or a text, without end."""
        found = self._raw.read(AT_ONCE_BYTES)
        end = max(found.rfind(b"\n"), found.rfind(b"\r"))
        if end >= 0:
            self._line_begin = self.done + end
        self.done += len(found)
        if self.done - self._line_begin > LONGEST_LINE_BYTES:
            raise DataError(
                f"{self.name}: a line has more than {LONGEST_LINE_BYTES} bytes, which no reading"
                " takes: describe the file as it is in a format of your own"
            )
        if self.done > self._most:
            raise DataError(
                f"{self.name}: unpacks to more than {SUSPICIOUS_RATIO} times its size, which no"
                " recording does; do not trust this archive"
            )
        return found
