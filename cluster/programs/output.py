"""What a program prints: kept in a file of bounded size, and shown to a person by line."""

import codecs
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEAD_BYTES = 16 << 20
TAIL_BYTES = 16 << 20
"""A log keeps its beginning and its end; a Pi's card has to hold it."""
LONGEST_PIECE = 8192
"""A longer line is shown in pieces."""
TAIL_TEXT = 16_384
"""The last characters, for the reason of a failure."""

SHOWN_BYTES = 32 << 20
SHOWN_BYTES_A_SECOND = 2048
"""A bounded display shows that much at once, then a sample: it goes into a file of a node."""


def _latest(line: str) -> str:
    """Return what a terminal shows of a line that carriage returns write over, as progress bars do.

    One at the very end may be half of a line's end.
    """
    body = line.removesuffix("\r")
    return body.rpartition("\r")[2] + line[len(body) :]


class BoundedLog:
    """A file that takes everything and keeps its first HEAD_BYTES and its last TAIL_BYTES, raw."""

    def __init__(
        self, path: Path, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES
    ) -> None:
        """Appends to what an earlier attempt left. Raises OSError."""
        self.path = path
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._tail_path = path.with_name(path.name + ".tail")
        self._file = path.open("ab", buffering=0)
        self._room = max(0, head_bytes - self._file.tell())
        self._tail_path.unlink(missing_ok=True)  # of an attempt that was killed
        self._tail: Any = None
        self._after_head = 0

    def add(self, piece: bytes) -> None:
        """Keep it. What a full disk refuses is lost, and the program runs on."""
        try:
            head = piece[: self._room]
            rest = piece[self._room :]
            if head:
                self._file.write(head)
                self._room -= len(head)
            if rest:
                self._add_to_tail(rest)
        except OSError:
            self._room -= min(self._room, len(piece))

    def _add_to_tail(self, rest: bytes) -> None:
        if self._tail is None:
            self._tail = self._tail_path.open("w+b", buffering=0)
        self._after_head += len(rest)
        rest = rest[-self._tail_bytes :]
        at = (self._after_head - len(rest)) % self._tail_bytes
        self._tail.seek(at)
        first = rest[: self._tail_bytes - at]
        self._tail.write(first)
        if len(first) < len(rest):
            self._tail.seek(0)
            self._tail.write(rest[len(first) :])

    def close(self) -> None:
        """Append the last bytes behind a line that counts what is left out."""
        if self._tail is not None and self._after_head:
            try:
                left_out = max(0, self._after_head - self._tail_bytes)
                if left_out:
                    at = self._after_head % self._tail_bytes
                else:
                    at = 0
                if left_out:
                    self._file.write(f"\n... {left_out} bytes left out ...\n".encode())
                self._copy(at, min(self._after_head, self._tail_bytes) - at)
                self._copy(0, at)
            except OSError:
                pass  # a full disk
        if self._tail is not None:
            self._tail.close()
            self._tail_path.unlink(missing_ok=True)
        self._file.close()

    def _copy(self, at: int, count: int) -> None:
        self._tail.seek(at)
        while count > 0 and (piece := self._tail.read(min(count, 1 << 20))):
            self._file.write(piece)
            count -= len(piece)


class ShownOutput:
    """Bytes of one process as text for a person.

    `show(text, end)` gets whole lines, or a piece without an end.
    """

    def __init__(
        self,
        show: Callable[[str, str], None],
        prefix: str = "",
        *,
        bounded: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin each line with the `prefix`, if any; a line then comes once it is whole."""
        self._show = show
        self._prefix = prefix
        self._clock = clock
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._mid_line = False
        if bounded:
            self._allowed = float(SHOWN_BYTES)
        else:
            self._allowed = float("inf")
        self._allowed_at = clock()
        self._left_out = 0
        self.tail = ""

    def add(self, piece: bytes) -> None:
        """Show what came."""
        text = self._decoder.decode(piece)
        self.tail = (self.tail + text)[-TAIL_TEXT:]
        *lines, rest = (self._rest + text).split("\n")
        for line in lines:
            self._line(_latest(line.removesuffix("\r")))
        self._rest = _latest(rest)
        # A carriage return at the very end may be half of a line's end.
        if not self._prefix and self._rest and not self._rest.endswith("\r"):
            self._piece(self._rest)
            self._rest = ""
        elif len(self._rest) > LONGEST_PIECE:
            self._line(self._rest)
            self._rest = ""

    def close(self) -> None:
        """Show the end of a line that never ended."""
        rest = (self._rest + self._decoder.decode(b"", final=True)).rstrip("\r")
        self._rest = ""
        if rest or self._mid_line:
            self._line(rest)

    def _line(self, line: str) -> None:
        while len(line) > LONGEST_PIECE:
            self._passed_on(self._prefix + line[:LONGEST_PIECE], "\n")
            line = line[LONGEST_PIECE:]
        self._passed_on(line if self._mid_line else self._prefix + line, "\n")
        self._mid_line = False

    def _piece(self, piece: str) -> None:
        self._passed_on(piece, "")
        self._mid_line = True

    def _passed_on(self, text: str, end: str) -> None:
        if self._allowed != float("inf"):
            now = self._clock()
            self._allowed = min(
                float(SHOWN_BYTES), self._allowed + SHOWN_BYTES_A_SECOND * (now - self._allowed_at)
            )
            self._allowed_at = now
            if self._allowed < 0:
                self._left_out += len(text) + len(end)
                return
            self._allowed -= len(text) + len(end)
            if self._left_out:
                self._show(
                    f"... {self._left_out} characters not shown: the log in the run's folder has"
                    " more ...",
                    "\n",
                )
                self._left_out = 0
        self._show(text, end)
