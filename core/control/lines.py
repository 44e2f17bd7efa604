"""The client of a supervisor: one JSON object a line over its unix socket.

It imports the standard library alone.
"""

import json
import socket
import time
from pathlib import Path
from typing import Any

from core.json_file import parsed_json

MOST_LINE_BYTES = 1_048_576
"""A status of 64 roles is some 30 KB."""


class SupervisorConnection:
    """A connection whose every step has the same deadline. Use as a context manager."""

    def __init__(self, path: Path, deadline_seconds: float) -> None:
        """Connect. Raises OSError."""
        self._deadline_seconds = deadline_seconds
        self._received = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(deadline_seconds)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise

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
        end = time.monotonic() + self._deadline_seconds
        while (found := self._received.find(b"\n")) < 0:
            if len(self._received) > MOST_LINE_BYTES:
                raise OSError(f"a line of more than {MOST_LINE_BYTES} bytes")
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            received = self._socket.recv(65_536)
            if not received:
                return b""
            self._received += received
        line = self._received[: found + 1]
        self._received = self._received[found + 1 :]
        return line


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
