"""What stands before a page: the guard of its requests, and the connections of its uvicorn server.

The guard checks Host and the method, and completes the headers. Connections are bounded in number
and time: uvicorn would accept without bounds, and asyncio's own accept repeats each failure a
thousandfold once descriptors are short (2,048 lines of log a second).
"""

import asyncio
import math
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from core.control.door import Door, expired, oldest_idle
from core.control.requests import OWN_PAGE, is_ours

REQUEST_SECONDS = 5.0
"""Time from the connection, or the end of the answer before, to the end of a request's head."""
ANSWER_SECONDS = 30.0
"""Time for a client to take an answer that is no stream."""
SWEEP_SECONDS = 0.5
HANDSHAKE_SECONDS = 5.0
"""Time for the whole handshake of TLS, from the connection."""
GOODBYE_SECONDS = 2.0
"""Time for a client of TLS to answer the end of its connection."""


@dataclass(frozen=True)
class Patience:
    """How long a connection may take, in seconds."""

    request: float = REQUEST_SECONDS
    answer: float = ANSWER_SECONDS
    between: float = REQUEST_SECONDS
    """Time from an answer to the first byte of the next request."""


USUAL = Patience()


class HttpConnection(H11Protocol):
    """A connection of uvicorn's, with what `Entrance` must know of it.

    Names of uvicorn's: `connection_lost`, `_unset_keepalive_if_required`, `transport`, `cycle`,
    `conn` and `scope`. The other names are ours.
    """

    def __init__(
        self, forget: Callable[["HttpConnection"], None], since: float, **settings: Any
    ) -> None:
        """`forget` is called when it is lost; uvicorn takes the `settings`."""
        super().__init__(**settings)
        self.forget = forget
        self.since = since
        """Time at which its present phase began, by the loop's clock."""
        self.deadline = math.inf
        """Time at which its present phase must have ended."""
        self._phase: tuple[bool, bool, object] = (True, False, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection (overrides uvicorn's)."""
        self.forget(self)
        super().connection_lost(exc)
        # uvicorn leaves the timer, and with it the connection, after a reset
        self._unset_keepalive_if_required()

    @property
    def is_connected(self) -> bool:
        """Whether it has its socket."""
        return cast(asyncio.Transport | None, self.transport) is not None

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        # before the first request there is no cycle
        cycle = cast(RequestResponseCycle | None, self.cycle)
        return cycle is None or cycle.response_complete

    @property
    def is_between_requests(self) -> bool:
        """Whether it has had an answer and no byte of another request."""
        if cast(RequestResponseCycle | None, self.cycle) is None:
            return False
        return self.idle and not self.conn.trailing_data[0]

    def observe(self, now: float, patience: Patience, endless: str) -> None:
        """Begin a phase if the connection is in another one, and set the deadline of its phase."""
        phase = self.idle, self.is_between_requests, self.cycle
        if phase != self._phase:
            self._phase = phase
            self.since = now
        self.deadline = self.since + self._limit(patience, endless)

    def _limit(self, patience: Patience, endless: str) -> float:
        if self.is_between_requests:
            return patience.between
        if self.idle:
            return patience.request
        if self.scope["path"] == endless:
            return math.inf
        return patience.answer


class Entrance:
    """What accepts for a uvicorn server that listens nowhere itself, within one event loop."""

    def __init__(
        self,
        door: Door,
        server: uvicorn.Server,
        endless: str,
        patience: Patience = USUAL,
        protocol: type[HttpConnection] = HttpConnection,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Take connections from now on.

        Answers of the path `endless` have no end. `protocol` makes the connections. Without `tls`
        they are plain HTTP.
        """
        self._protocol = protocol
        self._tls: dict[str, Any] = {}
        if tls is not None:
            self._tls = {
                "ssl": tls,
                "ssl_handshake_timeout": HANDSHAKE_SECONDS,
                "ssl_shutdown_timeout": GOODBYE_SECONDS,
            }
        self._door = door
        self._server = server
        self._endless = endless
        self._patience = patience
        self._connections: set[HttpConnection] = set()
        self._opening: dict[HttpConnection, socket.socket] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._accepts = True
        self._loop.add_reader(door.listener, self._accept)
        self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def stop(self) -> None:
        """Accept no more: the listener closes, and the kernel refuses later clients.

        Open connections stay.
        """
        if self._accepts:
            self._accepts = False
            self._loop.remove_reader(self._door.listener)
            self._door.listener.close()

    def close(self) -> None:
        """Accept no more, and cut open connections; the loop closes their sockets later."""
        self.stop()
        self._sweeping.cancel()
        for connection in list(self._connections):
            self._end(connection)

    def _accept(self) -> None:
        for accepted, client in self._door.newcomers(self._connections, self._evict):
            self._take(accepted, client)
        pause = self._door.pause_seconds
        if pause > 0:
            self._loop.remove_reader(self._door.listener)
            self._loop.call_later(pause, self._listen)

    def _listen(self) -> None:
        if self._accepts:
            self._loop.add_reader(self._door.listener, self._accept)

    def _take(self, accepted: socket.socket, client: str) -> HttpConnection:
        """Make the connection of a client at this address."""
        connection = self._protocol(
            self._forget,
            self._loop.time(),
            config=self._server.config,
            server_state=self._server.server_state,
            app_state={},
            _loop=self._loop,
        )
        self._connections.add(connection)
        opening = self._loop.create_task(self._open(connection, accepted))
        self._tasks.add(opening)
        opening.add_done_callback(self._tasks.discard)
        return connection

    def _forget(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)

    async def _open(self, connection: HttpConnection, accepted: socket.socket) -> None:
        self._opening[connection] = accepted
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted, **self._tls)
        except OSError:  # the client has gone, is slow, or speaks no TLS
            self._forget(connection)
            accepted.close()
        finally:
            del self._opening[connection]

    def _evict(self) -> bool:
        """Close the oldest connection without a request; return whether there was one."""
        candidates = (
            connection
            for connection in self._connections
            if connection.is_connected or connection in self._opening
        )
        oldest = oldest_idle(candidates)
        if oldest is None:
            return False
        self._end(oldest)
        return True

    def _end(self, connection: HttpConnection) -> None:
        self._forget(connection)
        if connection.is_connected:
            connection.transport.abort()
        elif connection in self._opening:
            with suppress(OSError):  # the other side was faster
                # its handshake then fails at once
                self._opening[connection].shutdown(socket.SHUT_RDWR)

    def _sweep(self) -> None:
        now = self._loop.time()
        connected = [connection for connection in self._connections if connection.is_connected]
        for connection in connected:
            connection.observe(now, self._patience, self._endless)
        for connection in expired(connected, now):
            self._end(connection)
        self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)


SAFE_METHODS = ("GET", "HEAD")
HEADERS = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every answer; each guard adds the policy for its own content."""


class RequestGuard(ABC):
    """A guard that answers what `refusal` refuses, passes on the rest, and adds missing headers."""

    headers: Mapping[str, str] = HEADERS

    def __init__(self, application: ASGIApp, names: Collection[str]) -> None:
        """`names`: hosts that the server answers to besides `localhost` and any address."""
        self.application = application
        self._names = {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request (ASGI)."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._complete(MutableHeaders(scope=message))
            await send(message)

        await (self.refusal(scope) or self.application)(scope, receive, send_with_headers)

    @abstractmethod
    def refusal(self, scope: Scope) -> ASGIApp | None:
        """Return the answer to a request that is refused, or None."""

    def is_for_us(self, scope: Scope) -> bool:
        """Return whether the request has one header Host, with an address or a name of ours."""
        hosts = Headers(scope=scope).getlist("host")
        return len(hosts) == 1 and is_ours(hosts[0], self._names)

    def _complete(self, headers: MutableHeaders) -> None:
        for name, value in self.headers.items():
            headers.setdefault(name, value)
        headers.setdefault("cache-control", "no-cache" if "etag" in headers else "no-store")


class PageGuard(RequestGuard):
    """The guard of a page that can only be looked at."""

    headers = HEADERS | {
        "content-security-policy": (
            "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            "object-src 'none'"
        ),
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
    }

    def refusal(self, scope: Scope) -> ASGIApp | None:
        """Refuse other methods than GET and HEAD, other hosts, and what another site's page loads.

        A person may follow a link from there. None lets it through.
        """
        if scope["method"] not in SAFE_METHODS:
            refusal = "this page can only be looked at: expected GET or HEAD\n"
            return PlainTextResponse(refusal, 405, {"Allow": ", ".join(SAFE_METHODS)})
        if not self.is_for_us(scope):
            refusal = "this page answers to localhost, to its address and to its node's name only\n"
            return PlainTextResponse(refusal, 421)
        headers = Headers(scope=scope)
        if (
            headers.get("sec-fetch-site") not in OWN_PAGE
            and headers.get("sec-fetch-mode") != "navigate"
        ):
            # It could read nothing, but hold a place of those who look.
            refusal = "this is not for the pages of other sites: open it in a tab of its own\n"
            return PlainTextResponse(refusal, 403)
        return None
