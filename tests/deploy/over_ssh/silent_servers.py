"""What may listen where an SSH server is expected, on an address that takes connections."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def closes(connection: socket.socket) -> None:
    """As sshd beyond MaxStartups, and a firewall in front of it."""
    connection.close()


def resets(connection: socket.socket) -> None:
    """As fail2ban with `reject`."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def sends_garbage(connection: socket.socket) -> None:
    """Another machine, with something for a terminal in what it says."""
    connection.sendall(b"220 \x1b[2J[/b] mail\r\n" * 101)
    connection.shutdown(socket.SHUT_WR)


def speaks_another_protocol(connection: socket.socket) -> None:
    """SSH by its first line alone."""
    connection.sendall(b"SSH-2.0-x\r\n" + b"\xff" * 4000)


def says_nothing(connection: socket.socket) -> None:
    """A machine that hangs: its kernel takes the connection."""


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port at which each connection on any address of loopback is answered so."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        others = [
            socket.create_server((f"127.0.0.{last}", server.getsockname()[1])) for last in (2, 3, 4)
        ]

        def accept(listening: socket.socket) -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:  # the end of the test
                    return
                kept.append(connection)
                try:
                    answer(connection)
                except OSError:  # the client has gone
                    continue

        everywhere = [server, *others]
        threads = [threading.Thread(target=accept, args=(one,)) for one in everywhere]
        for thread in threads:
            thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            for one in everywhere:
                one.shutdown(socket.SHUT_RDWR)
                one.close()
            for thread in threads:
                thread.join()
            for connection in kept:
                connection.close()
