"""Whether a gRPC server answers the first bytes of HTTP/2.

It needs neither TensorFlow nor grpcio.
"""

import selectors
import socket
import time
from collections.abc import Hashable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, TypeVar

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = 4
EMPTY_SETTINGS_FRAME = bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])
HEADER_BYTES = 9
ACKNOWLEDGED = 1

Key = TypeVar("Key", bound=Hashable)


def greets(header: bytes) -> bool:
    """Return whether the first HEADER_BYTES of a server begin its SETTINGS (RFC 9113, 3.4)."""
    kind = header[3]
    flags = header[4]
    stream = int.from_bytes(header[5:9], "big")
    return kind == SETTINGS and not flags & ACKNOWLEDGED and stream == 0


def answers(host: str, port: int, timeout_seconds: float) -> bool:
    """Whether the server sends its SETTINGS frame within this time, connecting included.

    A port that merely listens does not count: a stopped process still completes TCP handshakes.
    Never raises OSError.
    """
    try:
        return bool(answering({"": (host, port)}, timeout_seconds))
    except OSError:  # no descriptor is left
        return False


def answering(addresses: Mapping[Key, tuple[str, int]], timeout_seconds: float) -> set[Key]:
    """Return the servers that answer; all are probed at once, so that dead ones cost no time."""
    with closing(Probes[Key]()) as probes:
        for key, (host, port) in addresses.items():
            probes.ask(key, host, port, timeout_seconds)
        alive = set()
        while probes.open:
            alive |= {key for key, answered in probes.wait(timeout_seconds) if answered}
        return alive


def refuses(host: str, port: int, timeout_seconds: float) -> bool:
    """Whether the machine answers that nothing listens on this port. Never raises OSError."""
    try:
        socket.create_connection((host, port), timeout_seconds).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def accepts(host: str, port: int, timeout_seconds: float) -> bool:
    """Whether the port takes a connection: a stopped process does, too. Never raises OSError."""
    try:
        socket.create_connection((host, port), timeout_seconds).close()
    except OSError:
        return False
    return True


@dataclass
class _Asked(Generic[Key]):
    key: Key
    deadline: float
    header: bytes = b""
    sent: bool = False


class Probes(Generic[Key]):
    """Probes under way, all at the same time, in one thread. `close` ends them."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._asked: dict[socket.socket, _Asked[Key]] = {}
        self._found: list[tuple[Key, bool]] = []

    @property
    def open(self) -> int:
        """The number of probes whose result `wait` has not returned."""
        return len(self._asked) + len(self._found)

    def ask(self, key: Key, host: str, port: int, timeout_seconds: float) -> None:
        """Begin a probe. Give `host` as a number: this call would look up a name at once."""
        deadline = time.monotonic() + timeout_seconds
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )[0]
            connection = socket.socket(family, kind, protocol)
        except OSError:
            self._found.append((key, False))
            return
        connection.setblocking(False)
        connection.connect_ex(address)  # the result shows when we write
        self._asked[connection] = _Asked(key, deadline)
        self.selector.register(connection, selectors.EVENT_WRITE, connection)

    def wait(self, longest_seconds: float) -> list[tuple[Key, bool]]:
        """Results since the last call.

        Waits at most this long for one, or for an event of another descriptor.
        """
        now = time.monotonic()
        due = min((probe.deadline - now for probe in self._asked.values()), default=longest_seconds)
        for event, _ in self.selector.select(
            0.0 if self._found else max(0.0, min(longest_seconds, due))
        ):
            if isinstance(event.data, socket.socket):
                self._go_on(event.data)
        now = time.monotonic()
        overdue = [connection for connection, probe in self._asked.items() if probe.deadline <= now]
        for connection in overdue:
            self._end(connection, answered=False)
        results = self._found
        self._found = []
        return results

    def _go_on(self, connection: socket.socket) -> None:
        probe = self._asked[connection]
        try:
            if not probe.sent:
                connection.sendall(PREFACE + EMPTY_SETTINGS_FRAME)  # it fits into any send buffer
                probe.sent = True
                self.selector.modify(connection, selectors.EVENT_READ, connection)
                return
            received = connection.recv(HEADER_BYTES - len(probe.header))
        except BlockingIOError:
            return
        except OSError:
            self._end(connection, answered=False)
            return
        probe.header += received
        if not received or len(probe.header) == HEADER_BYTES:
            self._end(connection, answered=bool(received) and greets(probe.header))

    def _end(self, connection: socket.socket, *, answered: bool) -> None:
        self._found.append((self._asked.pop(connection).key, answered))
        self.selector.unregister(connection)
        connection.close()

    def close(self) -> None:
        """End all probes."""
        for connection in list(self._asked):
            self._end(connection, answered=False)
        self.selector.close()
