"""Talking to a cluster's supervisor over its unix socket (see `deploy.supervisor.control_server`)."""

import json
import os
import socket
import struct
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

from cluster.errors import ClusterError
from deploy.cluster.role_status import ClusterStatus

MOST_LINE_BYTES = 1_048_576
"""A status of 64 roles is some 30 KB."""
_CREDENTIALS = struct.Struct("3i")
"""`struct ucred` of unix(7): pid, uid, gid."""


class NobodyListensError(ClusterError):
    """There is no supervisor at the socket."""


class ControlClient:
    """One request a connection. Every wait has a deadline, because a supervisor can be stopped or stuck too."""

    def __init__(
        self,
        path: Path,
        deadline_seconds: float = 10.0,
        owner: int | None = None,
        stop_command: str = "fab deploy stop",
    ) -> None:
        """`owner` is the uid whose supervisor is to be talked to, ours by default.

        `stop_command` is what to type against a supervisor that does not answer.
        """
        self._path = path
        self._deadline_seconds = deadline_seconds
        self._stop_command = stop_command
        self._owner = os.getuid() if owner is None else owner

    def status(self) -> ClusterStatus:
        """The cluster as it is now."""
        return ClusterStatus.from_json(self.ask("status"))

    def ask(self, verb: str, **request: Any) -> dict[str, Any]:
        """The reply to one verb.

        Raises NobodyListensError without a supervisor, ClusterError when it refuses or does not answer in time.
        """
        with closing(self._connect()) as connection:
            return self._exchange(_Lines(connection), {"verb": verb, **request})

    def watch(self) -> Generator[ClusterStatus, None, None]:
        """The status now and after every change; every step waits at most the deadline. Raises as `ask`."""
        with closing(self._connect()) as connection:
            lines = _Lines(connection)
            yield ClusterStatus.from_json(self._exchange(lines, {"verb": "watch"}))
            while True:
                yield ClusterStatus.from_json(self._read(lines, "watch"))

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self._deadline_seconds)
        try:
            connection.connect(str(self._path))
        except (FileNotFoundError, ConnectionRefusedError) as error:
            connection.close()
            raise NobodyListensError(f"no supervisor listens at {self._path}") from error
        except OSError as error:
            connection.close()
            raise ClusterError(
                f"the supervisor at {self._path} cannot be reached: {error}; `{self._stop_command}` ends what is left"
            ) from error
        # A socket may lie in /tmp, where anybody could have been first to take the name.
        _, listener, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if listener != self._owner:
            connection.close()
            raise ClusterError(
                f"the process that listens at {self._path} belongs to user {listener}, not to user {self._owner}: "
                "use the account that started the cluster, or put the inventory into a folder with a shorter path"
            )
        return connection

    def _exchange(self, lines: "_Lines", request: dict[str, Any]) -> dict[str, Any]:
        try:
            lines.send(json.dumps(request).encode() + b"\n", self._deadline_seconds)
        except OSError as error:
            raise ClusterError(
                f"the supervisor at {self._path} hung up: {error}; `{self._stop_command}` ends what is left"
            ) from error
        return self._read(lines, request["verb"])

    def _read(self, lines: "_Lines", verb: str) -> dict[str, Any]:
        try:
            line = lines.read(self._deadline_seconds)
        except TimeoutError as error:
            raise ClusterError(
                f"the supervisor at {self._path} did not answer {verb!r} within {self._deadline_seconds:.0f} s; "
                f"`{self._stop_command}` ends it by force"
            ) from error
        except OSError as error:
            raise ClusterError(
                f"the supervisor at {self._path} hung up: {error}; `{self._stop_command}` ends what is left"
            ) from error
        if not line:
            raise ClusterError(
                f"the supervisor at {self._path} ended before it answered {verb!r}; "
                f"`{self._stop_command}` ends what is left"
            )
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise ClusterError(
                f"the supervisor at {self._path} answered {verb!r} with {line[:80]!r}: expected an object"
            )
        if not reply.get("ok"):
            raise ClusterError(str(reply.get("error", reply)))
        return reply


class _Lines:
    """A connection by lines, each read within a deadline of its own as a whole."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""

    def send(self, line: bytes, seconds: float) -> None:
        """Raises OSError."""
        self._connection.settimeout(seconds)
        self._connection.sendall(line)

    def read(self, seconds: float) -> bytes:
        """The next line with its end; empty at the end of the connection. Raises TimeoutError and other OSErrors."""
        end = time.monotonic() + seconds
        while (found := self._received.find(b"\n")) < 0:
            if len(self._received) > MOST_LINE_BYTES:
                raise OSError(f"a line of more than {MOST_LINE_BYTES} bytes")
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._connection.settimeout(left)
            received = self._connection.recv(65_536)
            if not received:
                return b""
            self._received += received
        line, self._received = self._received[: found + 1], self._received[found + 1 :]
        return line
