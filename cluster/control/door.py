"""A listening socket whose accept never becomes a busy loop: without descriptors it is left alone for a second."""

import errno
import logging
import socket
import time
from collections.abc import Callable

from cluster.control.descriptors import share_of
from cluster.control.seldom import Seldom

log = logging.getLogger(__name__)

BACKLOG = 128
PAUSE_SECONDS = 1.0
AT_ONCE = 32
"""Connections taken before the others get their turn."""
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Door:
    """Accepts connections for a server that holds at most `most` of them, and says rarely what it turned away."""

    def __init__(
        self, listener: socket.socket, purpose: str, most: int, clock: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        """`purpose` names the server in its warnings, e.g. `the live page`. Takes the socket over."""
        listener.setblocking(False)
        self.listener, self.most = listener, share_of(most)
        self._purpose, self._clock = purpose, clock
        self._full, self._short = Seldom(log, clock=clock), Seldom(log, clock=clock)
        self.closed_until = float("-inf")
        """Until then nothing is accepted."""

    @property
    def pause_seconds(self) -> float:
        """How long nothing is accepted from now on; 0 as a rule."""
        return max(0.0, self.closed_until - self._clock())

    def accept(self) -> tuple[socket.socket, str] | None:
        """The next connection, non-blocking, and the address of its client.

        None if none waits, or if none can be had now: see `closed_until`.
        """
        try:
            connection, client = self.listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        except OSError as problem:
            self.closed_until = self._clock() + PAUSE_SECONDS
            why = "no descriptors left" if problem.errno in _SHORTAGES else "connections cannot be taken"
            self._short.say(f"{self._purpose}: {why} ({problem.strerror}): asked again every second")
            return None
        connection.setblocking(False)
        return connection, str(client[0])

    def full(self, client: str) -> None:
        """Say, rarely, that there were too many connections when `client` came."""
        self._full.say(
            f"{self._purpose}: more than {self.most} connections at once, the latest from {client}: "
            "the oldest ones without a request are closed"
        )


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens on `host:port` (0: any free port). Raises OSError when the address cannot be bound.

    Not `socket.create_server`: that and `http.server` look names up, which on a switch without a DNS takes seconds.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
