"""The connections of the service: those with the token, and a few others that give way."""

import json
import socket
from functools import partial
from typing import Any, cast

import h11

from core.control.door import oldest_idle
from core.web.entrance import Entrance, HttpConnection
from recognise.service.guard import STREAM
from recognise.service.live.sockets import Sockets
from recognise.service.places import PROVE, UnprovenPlaces

AT_ONCE = 4
"""Connections to accept in one turn: they must not push each other out before they are read."""


class ServiceConnection(HttpConnection):
    """A connection that answers with the protocol's error object, and may become a WebSocket.

    Names of uvicorn's: `send_400_response`, `handle_websocket_upgrade`, `_should_upgrade`,
    `_get_upgrade`, `conn`, `config`, `scope`, `transport` and `ws_protocol_class`.
    """

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no HTTP (overrides uvicorn's)."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # an answer is under way
            return
        most = self.config.h11_max_incomplete_event_size
        self._close_with(400, f"expected a request of HTTP/1.1 with a head of at most {most} bytes")

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Make this connection a WebSocket, which the entrance forgets (overrides uvicorn's)."""
        sockets = cast(Sockets, self.ws_protocol_class)
        if sockets.full or sockets.ending:
            if sockets.ending:
                reason = "the service ends"
            else:
                reason = "too many sessions are open already"
            self._close_with(503, f"{reason}: come again later")
            return
        self.forget(self)
        super().handle_websocket_upgrade(event)

    def _should_upgrade(self) -> bool:
        """Return whether the request is for a WebSocket at its path (overrides uvicorn's).

        At other paths the header Upgrade means nothing.
        """
        return (
            self.scope["path"] == STREAM
            and self.scope["method"] == "GET"
            and self._get_upgrade() == b"websocket"
        )

    def _close_with(self, status: int, message: str) -> None:
        body = json.dumps({"error": message}).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        for event in (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class ServiceEntrance(Entrance):
    """An entrance where a client without the token has a place for a moment only.

    The name `app_state` is uvicorn's.
    """

    def __init__(
        self, *arguments: Any, places: UnprovenPlaces, most_proven: int, **options: Any
    ) -> None:
        """`places` are those of clients that have not named the token."""
        super().__init__(*arguments, **options)
        self._places = places
        self._most_proven = most_proven
        self._proven: dict[HttpConnection, None] = {}
        self._door.at_once = AT_ONCE

    def _take(self, accepted: socket.socket, client: str) -> HttpConnection:
        connection = super()._take(accepted, client)
        self._places.enter(connection, client, partial(self._end, connection))
        connection.app_state[PROVE] = partial(self._prove, connection)
        return connection

    def _prove(self, connection: HttpConnection) -> None:
        if connection not in self._connections or connection in self._proven:
            return
        self._places.leave(connection)
        if len(self._proven) >= self._most_proven:
            oldest = oldest_idle(self._proven)
            if oldest is not None:
                self._end(oldest)
        self._proven[connection] = None

    def _forget(self, connection: HttpConnection) -> None:
        self._places.leave(connection)
        self._proven.pop(connection, None)
        super()._forget(connection)
