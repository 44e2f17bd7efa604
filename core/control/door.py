"""Listening without exhaustion: descriptors, a socket, log lines at a bounded rate.

Pure functions say which connection makes room for the next, and which have had their time.
"""

import errno
import logging
import resource
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol, TypeVar

log = logging.getLogger(__name__)

BACKLOG = 128
PAUSE_SECONDS = 1.0
AT_ONCE = 32
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

MOST_DESCRIPTORS = 65_536
"""Open files, as `LimitNOFILE` of our units. No cluster needs more, and a million costs memory."""
SHARE = 8
"""A server takes at most one descriptor in 8; files and TensorFlow's own connections keep the
others."""
_FEWEST = 4

EVERY_SECONDS = 60.0


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one, at most 65,536; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        limit = MOST_DESCRIPTORS
    else:
        limit = min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit


def share_of(most: int) -> int:
    """Return the most connections of a server: `most`, or its share where descriptors are few."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return most
    return max(_FEWEST, min(most, soft // SHARE))


class RateLimitedLog:
    """Writes at most `most` lines a minute to `log`.

    The first line of the next minute counts the omitted ones.

    For lines that a client can cause thousands of times a second.
    """

    def __init__(
        self,
        log: logging.Logger,
        level: int = logging.WARNING,
        most: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._level = level
        self._most = most
        self._clock = clock
        self._begun = float("-inf")
        self._written = self._left_out = 0

    def say(self, message: str) -> None:
        """Write `message`, or count it."""
        now = self._clock()
        if now - self._begun >= EVERY_SECONDS:
            self._begun = now
            self._written = 0
        if self._written >= self._most:
            self._left_out += 1
            return
        if self._left_out:
            more = f" (and {self._left_out} such lines that were not written)"
        else:
            more = ""
        self._written = self._written + 1
        self._left_out = 0
        self._log.log(self._level, "%s%s", message, more)


class Door:
    """Accepts connections for a server that holds at most `most` of them.

    It logs refusals at a bounded rate.

    Without descriptors it accepts nothing for a second, so that `accept` never becomes a busy loop.
    """

    def __init__(
        self,
        listener: socket.socket,
        purpose: str,
        most: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`purpose` names the server in its warnings, e.g. `the live page`.

        Takes over the socket.
        """
        listener.setblocking(False)
        self.listener = listener
        self.most = share_of(most)
        self.at_once = max(1, min(AT_ONCE, self.most // 4))
        """Connections to accept in one turn: they must not evict each other before the server reads
        them."""
        self._purpose = purpose
        self._clock = clock
        self._full = RateLimitedLog(log, clock=clock)
        self._short = RateLimitedLog(log, clock=clock)
        self.closed_until = float("-inf")
        """Accepts nothing until then."""

    @property
    def pause_seconds(self) -> float:
        """Return how long it accepts nothing from now on; usually 0."""
        return max(0.0, self.closed_until - self._clock())

    def accept(self) -> tuple[socket.socket, str] | None:
        """The next connection, non-blocking, and the address of its client.

        None if none waits, or if it accepts nothing now: see `closed_until`.
        """
        try:
            connection, client = self.listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        except OSError as problem:
            self.closed_until = self._clock() + PAUSE_SECONDS
            if problem.errno in _SHORTAGES:
                why = "no descriptors left"
            else:
                why = "connections cannot be taken"
            self._short.say(
                f"{self._purpose}: {why} ({problem.strerror}): asked again every second"
            )
            return None
        connection.setblocking(False)
        return connection, str(client[0])

    def newcomers(
        self, connections: Collection[object], evict: Callable[[], bool]
    ) -> Iterator[tuple[socket.socket, str]]:
        """Yield the connections to take in this turn, and the addresses of their clients.

        `connections` are those of the server. Where they are too many, or descriptors are too few,
        `evict` closes one of them and returns whether it did; a newcomer without room is closed.
        """
        for _ in range(self.at_once):
            accepted = self.accept()
            if accepted is None:
                if self.pause_seconds:
                    evict()  # frees a descriptor for the next connection
                return
            connection, client = accepted
            if len(connections) >= self.most:
                self.full(client)
                if not evict():
                    connection.close()
                    continue
            yield connection, client

    def full(self, client: str) -> None:
        """Log, at a bounded rate, that there were too many connections when `client` came."""
        self._full.say(
            f"{self._purpose}: more than {self.most} connections at once, the latest from {client}:"
            " the oldest ones without a request are closed"
        )


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens on `host:port` (0: any free port).

    Raises OSError when the address cannot be bound.

    Not `socket.create_server`: that and `http.server` look up names, which takes seconds on a
    switch without a DNS.
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


class Waiting(Protocol):
    """A connection as far as its server decides whether it stays."""

    @property
    def idle(self) -> bool:
        """Whether no answer to it is under way."""

    @property
    def since(self) -> float:
        """Return the time at which its present wait began."""


class Timed(Protocol):
    """A connection that must get on until a time."""

    @property
    def deadline(self) -> float:
        """Return when its time is up; infinity for one whose answer is under way."""


Idle = TypeVar("Idle", bound=Waiting)
Limited = TypeVar("Limited", bound=Timed)


def oldest_idle(connections: Iterable[Idle]) -> Idle | None:
    """Return the connection that makes room: the one that has been idle for longest, if any is."""
    idle = [connection for connection in connections if connection.idle]
    return min(idle, key=lambda connection: connection.since, default=None)


def expired(connections: Iterable[Limited], now: float) -> list[Limited]:
    """Return the connections whose time is up."""
    return [connection for connection in connections if now >= connection.deadline]
