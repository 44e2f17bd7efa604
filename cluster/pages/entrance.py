"""The page's connections: how many there may be, and how long one may ask, wait or read.

uvicorn would accept without bounds, and asyncio's own accept repeats each failure a thousandfold once descriptors are
short (2,048 lines of log a second).
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from cluster.control.door import AT_ONCE, Door

REQUEST_SECONDS = 5.0
"""From the connection, or the end of the answer before, to the end of a request's head."""
ANSWER_SECONDS = 30.0
"""For an answer that is no stream to be taken."""
SWEEP_SECONDS = 0.5


class _Connection(H11Protocol):
    """uvicorn's, with what `Entrance` has to know of it."""

    def __init__(self, lost: Callable[["_Connection"], None], since: float, **given: Any) -> None:
        super().__init__(**given)
        self._lost = lost
        self.since = since
        self.made = False
        self.seen: tuple[bool, object] = (True, None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's too
        """See asyncio."""
        self.made = True
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._lost(self)
        super().connection_lost(exc)

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        cycle = cast(RequestResponseCycle | None, self.cycle)  # before the first request there is none
        return cycle is None or cycle.response_complete


class Entrance:
    """Accepts for a uvicorn server that listens nowhere itself, within one event loop."""

    def __init__(self, door: Door, server: uvicorn.Server, endless: str) -> None:
        """`endless` is the path whose answers have no end."""
        self._door, self._server, self._endless = door, server, endless
        self._connections: set[_Connection] = set()
        self._opening: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(door.listener, self._accept)
        self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def close(self) -> None:
        """Accept no more."""
        self._loop.remove_reader(self._door.listener)
        self._sweeping.cancel()

    def _accept(self) -> None:
        for accepted, client in self._accepted():
            if len(self._connections) >= self._door.most:
                self._door.full(client)
                if not self._evict():
                    accepted.close()
                    continue
            self._take(accepted)

    def _accepted(self) -> Iterator[tuple[socket.socket, str]]:
        for _ in range(AT_ONCE):
            accepted = self._door.accept()
            if accepted is None:
                pause = self._door.pause_seconds
                if pause > 0:
                    self._evict()  # its descriptor serves who comes next
                    self._loop.remove_reader(self._door.listener)
                    self._loop.call_later(pause, self._loop.add_reader, self._door.listener, self._accept)
                return
            yield accepted

    def _take(self, accepted: socket.socket) -> None:
        connection = _Connection(
            self._connections.discard, self._loop.time(), config=self._server.config,
            server_state=self._server.server_state, app_state={}, _loop=self._loop,
        )  # fmt: skip
        self._connections.add(connection)
        opening = self._loop.create_task(self._open(connection, accepted))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, connection: _Connection, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted)
        except OSError:  # it has gone already
            self._connections.discard(connection)
            accepted.close()

    def _evict(self) -> bool:
        """Close the oldest connection without a request; whether there was one."""
        idle = [one for one in self._connections if one.idle and one.made]
        if not idle:
            return False
        self._end(min(idle, key=lambda one: one.since))
        return True

    def _end(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        connection.transport.abort()

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in [one for one in self._connections if one.made]:
            seen = connection.idle, connection.cycle
            if seen != connection.seen:
                connection.seen, connection.since = seen, now
            endless = not connection.idle and connection.scope["path"] == self._endless
            limit = REQUEST_SECONDS if connection.idle else ANSWER_SECONDS
            if not endless and now - connection.since > limit:
                self._end(connection)
        self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)
