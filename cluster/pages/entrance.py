"""The connections of the page: how many there may be, how long one may ask, wait or read, and what it may ask for.

uvicorn would accept without bounds, and asyncio's own accept repeats each failure a thousandfold once descriptors are
short (2,048 lines of log a second).
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from cluster.control.door import Door
from cluster.control.rules import is_ours

REQUEST_SECONDS = 5.0
"""From the connection, or the end of the answer before, to the end of a request's head."""
ANSWER_SECONDS = 30.0
"""For an answer that is no stream to be taken."""
SWEEP_SECONDS = 0.5
HANDSHAKE_SECONDS = 5.0
"""For the whole handshake of TLS, from the connection."""
GOODBYE_SECONDS = 2.0
"""What a client of TLS has to answer the end of its connection."""


@dataclass(frozen=True)
class Patience:
    """How long a connection may take, in seconds."""

    request: float = REQUEST_SECONDS
    answer: float = ANSWER_SECONDS
    between: float = REQUEST_SECONDS
    """From an answer to the first byte of the next request."""


USUAL = Patience()


class Connection(H11Protocol):
    """uvicorn's, with what `Entrance` has to know of it."""

    def __init__(self, lost: Callable[["Connection"], None], since: float, **given: Any) -> None:
        super().__init__(**given)
        self._lost = lost
        self.since = since
        self.seen: tuple[bool, bool, object] = (True, False, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._lost(self)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn leaves the timer, and with it the connection, after a reset

    @property
    def made(self) -> bool:
        """Whether it has its socket."""
        return cast(asyncio.Transport | None, self.transport) is not None

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        cycle = cast(RequestResponseCycle | None, self.cycle)  # before the first request there is none
        return cycle is None or cycle.response_complete

    @property
    def kept(self) -> bool:
        """Whether it has had an answer and no byte of another request."""
        return (
            cast(RequestResponseCycle | None, self.cycle) is not None and self.idle and not self.conn.trailing_data[0]
        )


class Entrance:
    """Accepts for a uvicorn server that listens nowhere itself, within one event loop."""

    def __init__(
        self,
        door: Door,
        server: uvicorn.Server,
        endless: str,
        patience: Patience = USUAL,
        protocol: type[Connection] = Connection,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`endless` is the path whose answers have no end; `protocol` makes the connections; None is plain HTTP."""
        self._protocol = protocol
        self._tls: dict[str, Any] = {}
        if tls is not None:
            self._tls = {
                "ssl": tls, "ssl_handshake_timeout": HANDSHAKE_SECONDS, "ssl_shutdown_timeout": GOODBYE_SECONDS,
            }  # fmt: skip
        self._door, self._server, self._endless, self._patience = door, server, endless, patience
        self._connections: set[Connection] = set()
        self._opening: dict[Connection, socket.socket] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._accepts = True
        self._loop.add_reader(door.listener, self._accept)
        self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def stop(self) -> None:
        """Accept no more: the listener closes, so the kernel refuses who comes now. What is open stays."""
        if self._accepts:
            self._accepts = False
            self._loop.remove_reader(self._door.listener)
            self._door.listener.close()

    def close(self) -> None:
        """Accept no more, and cut what is still open; the loop closes those sockets in its next turn."""
        self.stop()
        self._sweeping.cancel()
        for connection in list(self._connections):
            self._end(connection)

    def _accept(self) -> None:
        for accepted, client in self._accepted():
            if len(self._connections) >= self._door.most:
                self._door.full(client)
                if not self._evict():
                    accepted.close()
                    continue
            self._take(accepted)

    def _accepted(self) -> Iterator[tuple[socket.socket, str]]:
        for _ in range(self._door.at_once):
            accepted = self._door.accept()
            if accepted is None:
                pause = self._door.pause_seconds
                if pause > 0:
                    self._evict()  # its descriptor serves who comes next
                    self._loop.remove_reader(self._door.listener)
                    self._loop.call_later(pause, self._listen)
                return
            yield accepted

    def _listen(self) -> None:
        if self._accepts:
            self._loop.add_reader(self._door.listener, self._accept)

    def _take(self, accepted: socket.socket) -> None:
        connection = self._protocol(
            self._connections.discard, self._loop.time(), config=self._server.config,
            server_state=self._server.server_state, app_state={}, _loop=self._loop,
        )  # fmt: skip
        self._connections.add(connection)
        opening = self._loop.create_task(self._open(connection, accepted))
        self._tasks.add(opening)
        opening.add_done_callback(self._tasks.discard)

    async def _open(self, connection: Connection, accepted: socket.socket) -> None:
        self._opening[connection] = accepted
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted, **self._tls)
        except OSError:  # it has gone already, is slow, or speaks no TLS
            self._connections.discard(connection)
            accepted.close()
        finally:
            del self._opening[connection]

    def _evict(self) -> bool:
        """Close the oldest connection without a request; whether there was one."""
        idle = [one for one in self._connections if one.idle and (one.made or one in self._opening)]
        if not idle:
            return False
        self._end(min(idle, key=lambda one: one.since))
        return True

    def _end(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection.made:
            connection.transport.abort()
        elif connection in self._opening:
            with suppress(OSError):  # the other side was faster
                self._opening[connection].shutdown(socket.SHUT_RDWR)  # its handshake then fails at once

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in [one for one in self._connections if one.made]:
            seen = connection.idle, connection.kept, connection.cycle
            if seen != connection.seen:
                connection.seen, connection.since = seen, now
            endless = not connection.idle and connection.scope["path"] == self._endless
            limit = self._patience.request if connection.idle else self._patience.answer
            limit = self._patience.between if connection.kept else limit
            if not endless and now - connection.since > limit:
                self._end(connection)
        self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)


SAFE_METHODS = ("GET", "HEAD")
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guarded:
    """Lets through what is a GET or HEAD for a host by a name that is ours."""

    def __init__(self, inner: ASGIApp, names: Collection[str]) -> None:
        """`names`: hosts that the page answers to besides `localhost` and any address."""
        self._inner, self._names = inner, {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-cache" if "etag" in headers else "no-store")
            await send(message)

        hosts = [value for name, value in scope["headers"] if name == b"host"]
        answer = self._inner
        if scope["method"] not in SAFE_METHODS:
            words = "this page can only be looked at: expected GET or HEAD\n"
            answer = PlainTextResponse(words, 405, {"Allow": ", ".join(SAFE_METHODS)})
        elif len(hosts) != 1 or not is_ours(hosts[0].decode("latin-1"), self._names):
            words = "this page answers to localhost, to its address and to its node's name only\n"
            answer = PlainTextResponse(words, 421)
        await answer(scope, receive, send_with_headers)
