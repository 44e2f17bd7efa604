"""A model computes in a process of its own, which can be killed: windows in, logits out.

The service and the process send each other a kind, a length and bytes.

Neither side believes the other's length: each names the most that it takes.
"""

import socket
import struct
import time
from typing import Literal

Kind = Literal[b"R", b"W", b"L", b"E"]
READY: Kind = b"R"
"""The model is open. No bytes follow."""
WINDOWS: Kind = b"W"
"""Float32 windows, little-endian, as the export describes one."""
LOGITS: Kind = b"L"
"""Float32 logits of these windows."""
REFUSED: Kind = b"E"
"""The reason of no answer: text in UTF-8."""
LONGEST_TEXT = 1024
_HEAD = struct.Struct("<cI")

STARTED = b"R"
"""The nursery has loaded the runtimes."""
LONGEST_REQUEST = 16 << 10
"""Bytes of the JSON with which the nursery starts a process."""
CODE = struct.Struct("=i")
"""The exit code of a process of the nursery, as `subprocess` says it."""


class ChannelEndedError(Exception):
    """The other side has ended, or says what this side does not take."""


def send(channel: socket.socket, kind: Kind, content: bytes = b"") -> None:
    """Send one frame. Raises OSError."""
    channel.sendall(_HEAD.pack(kind, len(content)))
    channel.sendall(content)


def receive(
    channel: socket.socket, most: int, seconds: float | None = None
) -> tuple[bytes, bytearray]:
    """Return the next frame, of `most` bytes at most, within so many seconds.

    Raises ChannelEndedError, TimeoutError and OSError.
    """
    end = None
    if seconds is not None:
        end = time.monotonic() + seconds
    kind, size = _HEAD.unpack(_read(channel, _HEAD.size, end))
    if size > most:
        raise ChannelEndedError(f"expected at most {most} bytes, got {size}")
    return kind, _read(channel, size, end)


def _read(channel: socket.socket, size: int, end: float | None) -> bytearray:
    content = bytearray(size)
    rest = memoryview(content)
    while rest:
        if end is not None:
            channel.settimeout(max(end - time.monotonic(), 1e-3))
        count = channel.recv_into(rest)
        if not count:
            raise ChannelEndedError("its process has ended")
        rest = rest[count:]
    return content
