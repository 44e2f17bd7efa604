"""The client of a supervisor: one JSON object a line over its unix socket.

It imports the standard library alone.
"""

import json
import socket
import time
from io import BufferedReader
from pathlib import Path
from typing import Any

from core.control.client import Received
from core.ground.files import parsed_json

MOST_LINE_BYTES = 1_048_576
"""A status of 64 roles is some 30 KB."""


class SupervisorConnection:
    """A connection whose every step has the same deadline. Use as a context manager."""

    def __init__(self, path: Path, deadline_seconds: float) -> None:
        """Connect. Raises OSError."""
        self._deadline_seconds = deadline_seconds
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(deadline_seconds)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._received = Received(self._socket, 0.0)
        self._lines = BufferedReader(self._received)

    def __enter__(self) -> "SupervisorConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, verb: str, **request: Any) -> None:
        """Send one request. Raises OSError."""
        self._socket.settimeout(self._deadline_seconds)
        self._socket.sendall(json.dumps({"verb": verb, **request}).encode() + b"\n")

    def read(self) -> bytes:
        """The next line with its end; empty at the end of the connection.

        Raises TimeoutError and other OSErrors.
        """
        self._received.end = time.monotonic() + self._deadline_seconds
        line = self._lines.readline(MOST_LINE_BYTES + 1)
        if len(line) > MOST_LINE_BYTES:
            raise OSError(f"a line of more than {MOST_LINE_BYTES} bytes")
        if line.endswith(b"\n"):
            return line
        return b""


def ask_supervisor(
    path: Path, deadline_seconds: float, verb: str, **request: str
) -> dict[str, Any]:
    """The supervisor's reply to one request.

    Raises OSError, and ValueError for a reply that is no JSON object.
    """
    with SupervisorConnection(path, deadline_seconds) as connection:
        connection.send(verb, **request)
        reply = parsed_json(connection.read())
    if not isinstance(reply, dict):
        raise ValueError(f"expected an object, got {str(reply)[:80]!r}")
    return reply
