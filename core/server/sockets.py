"""TCP sockets of this machine: whose they are, and how to shut others' sockets.

Also whether a gRPC server answers the first bytes of HTTP/2, without TensorFlow and grpcio.
"""

import contextlib
import errno
import ipaddress
import os
import selectors
import socket
import sys
import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from core.cage.landlock import descriptor_of
from core.ground.addresses import plain_address

_WORD_DIGITS = 8


def is_elsewhere(connection: socket.socket) -> bool:
    """Return whether a connection comes from another machine.

    One that was reset meanwhile counts as one of this machine.
    """
    try:
        peer_address = plain_address(connection.getpeername()[0])
        local_address = plain_address(connection.getsockname()[0])
    except OSError:
        return False
    return peer_address != local_address and not peer_address.is_loopback


class Connection(NamedTuple):
    """A line of the kernel's tables.

    `state` is hexadecimal (net/tcp_states.h), the peer's address a plain one.
    """

    port: int
    peer: tuple[str, int]
    state: str
    inode: str


def connections(process: int | str = "self") -> Iterator[Connection]:
    """Yield the TCP sockets that `process` may have, IPv4 and IPv6.

    Connections that wait to be accepted are among them.

    Raises OSError where the kernel does not show them.
    """
    for table in ("tcp", "tcp6"):
        name = f"/proc/{process}/net/{table}"
        with (
            contextlib.suppress(FileNotFoundError),
            open(name, encoding="ascii") as lines,
        ):  # no IPv6: no tcp6
            next(lines)
            for line in lines:
                _, local, peer, state, *_, inode = line.split()[:10]
                address, _, port = peer.rpartition(":")
                yield Connection(
                    int(local.rpartition(":")[2], 16),
                    (_address(address), int(port, 16)),
                    state,
                    inode,
                )


def _address(digits: str) -> str:
    """The address of 32-bit words in the machine's byte order, in hexadecimal."""
    numbers = [int(digits[k : k + _WORD_DIGITS], 16) for k in range(0, len(digits), _WORD_DIGITS)]
    return str(
        plain_address(
            str(
                ipaddress.ip_address(
                    b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
                )
            )
        )
    )


def sockets_to(process: int, addresses: set[tuple[str, int]]) -> list[int]:
    """Descriptors of `process` whose TCP peer is one of the (address, port) pairs."""
    descriptors = []
    with contextlib.suppress(OSError):
        links = {
            f"socket:[{connection.inode}]"
            for connection in connections(process)
            if connection.peer in addresses
        }
        for name in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{process}/fd/{name}") in links:
                    descriptors.append(int(name))
    return descriptors


def cut(process: int, addresses: set[tuple[str, int]]) -> int:
    """Shut the sockets of `process` to these addresses; returns their number.

    Raises OSError if the kernel refuses: EPERM (ptrace is restricted), ENOSYS (older than Linux
    5.6), or ProcessLookupError when the process is gone.
    """
    descriptors = sockets_to(process, addresses)
    if not descriptors:
        return 0
    handle = os.pidfd_open(process)
    try:
        done = 0
        for descriptor in descriptors:
            try:
                copy = descriptor_of(handle, descriptor)
            except OSError as problem:
                if problem.errno == errno.EBADF:  # closed since we looked
                    continue
                raise
            with socket.socket(fileno=copy) as peer, contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
                done += 1
        return done
    finally:
        os.close(handle)


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
class _OpenProbe(Generic[Key]):
    key: Key
    deadline: float
    header: bytes = b""
    sent: bool = False


class Probes(Generic[Key]):
    """Probes under way, all at the same time, in one thread. `close` ends them."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._asked: dict[socket.socket, _OpenProbe[Key]] = {}
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
        self._asked[connection] = _OpenProbe(key, deadline)
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
