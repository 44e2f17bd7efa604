"""This process's sockets, TensorFlow's included, found under /proc/self/fd."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")
LISTENING_STATE = 1
"""Answer of SO_ACCEPTCONN for a listening socket."""


def own_sockets() -> Iterator[tuple[int, int]]:
    """Yield descriptor and inode of each open socket.

    The inode distinguishes sockets that reuse a descriptor number.
    """
    for name in os.listdir(DESCRIPTORS):
        descriptor = int(name)
        try:
            status = os.fstat(descriptor)  # a tenth of the cost of reading the link
        except OSError:  # closed since it was listed
            continue
        if stat.S_ISSOCK(status.st_mode):
            yield descriptor, status.st_ino


@contextmanager
def borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A socket object over a descriptor whose owner keeps it.

    Not a dup: gRPC's epoll keeps reporting a connection that gRPC has closed while a duplicate
    lives. Raises OSError for a descriptor that is closed meanwhile.
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
    """Whether the socket accepts connections."""
    return view.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == LISTENING_STATE
