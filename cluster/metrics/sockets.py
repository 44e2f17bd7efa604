"""This process's own sockets, TensorFlow's included, found under /proc/self/fd."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")
LISTENING_STATE = 1
"""What SO_ACCEPTCONN answers for a listening socket."""


def own_sockets() -> Iterator[tuple[int, int]]:
    """(descriptor, inode) of each open socket. The inode tells a socket from a later one with the same number."""
    for name in os.listdir(DESCRIPTORS):
        descriptor = int(name)
        try:
            found = os.fstat(descriptor)  # a tenth of what it costs to read the link
        except OSError:  # closed since it was listed
            continue
        if stat.S_ISSOCK(found.st_mode):
            yield descriptor, found.st_ino


@contextmanager
def borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A socket object over a descriptor that somebody else owns and goes on owning.

    Not a dup: gRPC's epoll would go on reporting a connection that it had closed while the duplicate lived.
    Raises OSError when the descriptor is closed meanwhile.
    """
    view = socket.socket(fileno=descriptor)
    try:
        yield view
    finally:
        view.detach()


def is_tcp(view: socket.socket) -> bool:
    """Whether this is TCP over IPv4 or IPv6."""
    return view.family in (socket.AF_INET, socket.AF_INET6) and view.type == socket.SOCK_STREAM


def is_listening(view: socket.socket) -> bool:
    """Whether connections are accepted from it."""
    return view.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == LISTENING_STATE
