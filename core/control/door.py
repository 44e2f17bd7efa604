"""Listening without exhaustion: descriptors, connections, bytes, log lines at a bounded rate."""

import errno
import ipaddress
import logging
import resource
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from core.ground.waiting import until

log = logging.getLogger(__name__)

BACKLOG = 128
PAUSE_SECONDS = 1.0
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
AT_ONCE = 4
"""Connections to accept in one turn: they must not push each other out before they are read."""
STALL_MILLISECONDS = 20_000
READ_BYTES = 1 << 14
"""Bytes of one read: each small message of a WebSocket in it becomes some hundred bytes."""
MOST_UNPROVEN_BYTES = 320 << 10
"""Bytes that a client may send before the token: the largest state to resume, and a message's rest.
"""
MOST_UNTAKEN_BYTES = 2 << 20
"""Bytes of one proven client that no request and no message has taken, as of pings without end."""
FRAMES_BYTES = 256
"""Bytes around one message: of its frames, of TLS, and of pings before it."""
MOST_DISCARDED_BYTES = 16 << 20
"""Bytes that may come behind an answer, as those of a WebSocket that was refused."""
MOST_HELD_BYTES = 8 << 20
MOST_BYTES_OF_UNPROVEN = 2 << 20
"""Bytes of all proven and unproven clients that nothing took: who then holds more than a few is
closed."""
FEW_BYTES = 1 << 15
NETWORK_BITS = 64
"""A client of IPv6 has a whole network of addresses."""

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


class Visitor(socket.socket):
    """An accepted connection, which may send little until its client has proven itself."""

    def __init__(self, accepted: socket.socket, listener: "Listener", client: Any) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())
        self.ends = (*client[:2], *self.getsockname()[:2])
        """The addresses and ports of both ends."""
        self.address = network_of(str(client[0]))
        """Whose share it is of: the client's address or, of IPv6, its network."""
        self.since = time.monotonic()
        """Time of its last request, or of the connection."""
        self.is_proven = False
        self.requests = 0
        """Requests that are being answered."""
        self.untaken = 0
        """Bytes that came since a request or message of it was taken."""
        self._listener = listener

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """Receive a little. Raises ConnectionAbortedError where the client sends too much."""
        received = super().recv(min(bufsize, READ_BYTES), flags)
        self._count(len(received))
        return received

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Receive a little into a buffer. Raises as `recv` does."""
        size = super().recv_into(buffer, min(nbytes or len(buffer), READ_BYTES), flags)
        self._count(size)
        return size

    def end(self) -> None:
        """Have its server close it: nothing more comes, and nothing can be sent."""
        with suppress(OSError):  # the client was faster
            self.shutdown(socket.SHUT_RDWR)

    def prove(self) -> None:
        """Count it among those of clients that may stay."""
        if not self.is_proven:
            self._listener.make_proven(self)

    def take(self, size: int) -> None:
        """Note that so many bytes were taken of what came, and what frames them."""
        self.untaken = max(0, self.untaken - size - size // 8 - FRAMES_BYTES)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request that is being answered: the connection stays meanwhile."""
        self.requests += 1
        self.since = time.monotonic()
        self.untaken = 0
        try:
            yield
        finally:
            self.requests -= 1
            self.since = time.monotonic()
            self.untaken = 0
            if self.is_proven:  # its server reads on: with bytes unread it would reset the answer
                self.untaken = -MOST_DISCARDED_BYTES

    def _count(self, size: int) -> None:
        self.untaken += size
        most = MOST_UNPROVEN_BYTES
        most_of_all = MOST_BYTES_OF_UNPROVEN
        if self.is_proven:
            most = MOST_UNTAKEN_BYTES
            most_of_all = MOST_HELD_BYTES
        if self.untaken > most or (
            self.untaken > FEW_BYTES and self._listener.untaken(self.is_proven) > most_of_all
        ):
            raise ConnectionAbortedError(f"{self.untaken} bytes came that no request took")


class Listener(socket.socket):
    """A listening socket with few connections, at which any server accepts.

    Each connection is unproven until its server says otherwise: of those the oldest gives way,
    first one of the same address. Of the proven ones the oldest without a request does.
    """

    def __init__(
        self,
        host: str,
        port: int,
        purpose: str,
        most: int,
        most_proven: int | None = None,
        share: int = 1,
    ) -> None:
        """Listen. Raises OSError when the address cannot be bound.

        `purpose` names the server in warnings, e.g. `the live page`. `most` unproven connections
        stay, of one address one in `share` of them, and as many proven ones or `most_proven`.
        """
        listener = listening(host, port)
        super().__init__(listener.family, listener.type, listener.proto, listener.detach())
        # The kernel ends a connection whose client takes nothing; connections inherit it.
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALL_MILLISECONDS)
        # asyncio sets it where a socket names its protocol, and `accept` names none. Without it the
        # second part of an answer waits 40 ms for the acknowledgement of the first.
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self.getsockname()[1]
        self.most = share_of(most)
        self._most_proven = share_of(most_proven or most)
        self._most_of_one = max(1, self.most // share)
        self._purpose = purpose
        self._visitors: dict[tuple[object, ...], Visitor] = {}
        self._closed_until = float("-inf")
        self._full = RateLimitedLog(log)
        self._short = RateLimitedLog(log)

    def listen(self, backlog: int = BACKLOG, /) -> None:
        """Keep the kernel's queue: asyncio's `backlog` is also how many it accepts in one turn."""
        super().listen(max(backlog, BACKLOG))

    def accept(self) -> tuple[Visitor, Any]:
        """Accept the next connection. Raises OSError where none waits, or none can be taken."""
        if time.monotonic() < self._closed_until:
            raise BlockingIOError
        try:
            accepted, client = super().accept()
        except OSError as problem:
            if problem.errno in SHORTAGES:
                self._closed_until = time.monotonic() + PAUSE_SECONDS
                self._give_way(self._of(proven=False) or self._idle())
                self._short.say(
                    f"{self._purpose}: no descriptors left ({problem.strerror}): asked again every"
                    " second"
                )
            raise
        visitor = Visitor(accepted, self, client)
        unproven = self._of(proven=False)
        same = [other for other in unproven if other.address == visitor.address]
        if len(same) >= self._most_of_one:
            self._say_full(client[0])
            self._give_way(same)
        elif len(unproven) >= self.most:
            self._say_full(client[0])
            self._give_way(unproven)
        elif len(self._of(proven=True)) >= self._most_proven and not self._give_way(self._idle()):
            self._say_full(client[0])
            visitor.close()
            raise BlockingIOError
        self._visitors[visitor.ends] = visitor
        return visitor, client

    def visitor(self, client: Sequence[object], server: Sequence[object]) -> Visitor | None:
        """Return the connection between these two addresses with ports."""
        return self._visitors.get((*client[:2], *server[:2]))

    def make_proven(self, visitor: Visitor) -> None:
        """Count a connection among the proven ones, of which the oldest idle one makes room."""
        if len(self._of(proven=True)) >= self._most_proven:
            self._give_way(self._idle())
        visitor.is_proven = True

    def end_late(self, seconds: float) -> None:
        """End the unproven connections that have asked nothing for so long."""
        end = time.monotonic() - seconds
        for visitor in self._of(proven=False):
            if visitor.since < end:
                visitor.end()

    def end_all(self, seconds: float) -> None:
        """End all connections, and wait at most so long for answers under way."""
        for visitor in self._open():
            visitor.end()
        until(lambda: not any(visitor.requests for visitor in self._open()), seconds, 0.01)

    def untaken(self, proven: bool) -> int:
        """Return the bytes that all connections of this kind hold."""
        return sum(max(visitor.untaken, 0) for visitor in self._of(proven=proven))

    def _open(self) -> list[Visitor]:
        for ends, visitor in tuple(self._visitors.items()):
            if visitor.fileno() < 0:
                self._visitors.pop(ends, None)
        return list(self._visitors.values())

    def _of(self, *, proven: bool) -> list[Visitor]:
        return [visitor for visitor in self._open() if visitor.is_proven == proven]

    def _idle(self) -> list[Visitor]:
        return [visitor for visitor in self._of(proven=True) if not visitor.requests]

    def _give_way(self, visitors: Sequence[Visitor]) -> bool:
        """End the oldest of these and forget it; return whether there is one."""
        oldest = min(visitors, key=lambda visitor: visitor.since, default=None)
        if oldest is None:
            return False
        self._visitors.pop(oldest.ends, None)
        oldest.end()
        return True

    def _say_full(self, client: str) -> None:
        self._full.say(
            f"{self._purpose}: more than {self.most} connections at once, the latest from {client}:"
            " the oldest ones without a request are closed"
        )


def network_of(address: str) -> str:
    """Return whose share an address is of: itself or, of IPv6, its network."""
    try:
        client_address = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(client_address, ipaddress.IPv4Address):
        return address
    if client_address.ipv4_mapped is not None:  # a client of IPv4 at a socket of both
        return str(client_address.ipv4_mapped)
    return str(ipaddress.ip_network((int(client_address), NETWORK_BITS), strict=False))


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
