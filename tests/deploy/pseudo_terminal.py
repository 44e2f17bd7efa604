"""A command on a terminal of our own: what a person would see, byte by byte."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE_SECONDS = 90.0
AGAIN_SECONDS = 5.0
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[(?:[0-9]+;)*(?:3[0-7]|9[0-7]|38|4[0-7]|48)(?:;[0-9]+)*m")


@dataclass
class Terminal:
    """What the command has written so far."""

    process: subprocess.Popen[bytes]
    descriptor: int
    columns: int
    written: bytes = b""
    open: bool = field(default=True)

    @property
    def text(self) -> str:
        return self.written.decode("utf-8", errors="replace")

    @property
    def rows(self) -> list[str]:
        """Each row as it was drawn, without colours and cursor movements."""
        return [_SEQUENCE.sub("", row) for row in re.split(r"[\r\n]+", self.text)]

    def until(self, pattern: str, times: int = 1) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while len(re.findall(pattern, self.text)) < times:
            if not self.open or time.monotonic() > end:
                raise AssertionError(f"{pattern!r} did not come {times} times: {self.text}")
            self._read()

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.write(self.descriptor, b"\x03")

    def end_after(self, keys: bytes) -> int:
        """Press these keys, again and again: a Ctrl-C just before a read does not end the read."""
        end = time.monotonic() + PATIENCE_SECONDS
        pressed = -AGAIN_SECONDS
        while self.open and time.monotonic() < end:
            if time.monotonic() - pressed >= AGAIN_SECONDS:
                pressed = time.monotonic()
                os.write(self.descriptor, keys)
            self._read()
        return self.process.wait(PATIENCE_SECONDS)

    def end(self) -> int:
        end = time.monotonic() + PATIENCE_SECONDS
        while self.open and time.monotonic() < end:
            self._read()
        return self.process.wait(PATIENCE_SECONDS)

    def _read(self) -> None:
        if select.select([self.descriptor], [], [], 0.1)[0]:
            try:
                received = os.read(self.descriptor, 65536)
            except OSError:  # the last who had it open is gone
                received = b""
            self.open = bool(received)
            self.written += received


@contextmanager
def on_a_terminal(
    words: Sequence[str],
    folder: Path,
    columns: int = 80,
    rows: int = 40,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Terminal]:
    """Run the command as the foreground of a terminal of this size; kill it at the end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    usual = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "COLUMNS", "LINES")
    }
    process = subprocess.Popen(
        words,
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**usual, "TERM": "xterm-256color", **(environment or {})},
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours, columns)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(ours)
