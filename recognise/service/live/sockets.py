"""The WebSocket connections: uvicorn's, with bounds of their own, and a reason for each end."""

import asyncio
import hmac
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pydantic_core
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame
from websockets.protocol import State

from recognise.service.limits import Budget, RequestError, StreamLimits, bad
from recognise.service.places import PROVE, UnprovenPlaces

POLICY = 1008
TOO_LARGE = 1009
BROKEN = 1011
RESTART = 1012
BUSY = 1013
"""Close codes: RFC 6455, and its registry for 1012 and 1013."""
SERVICE_ENDS = "the service ends".ljust(124)
"""Reason by which a session learns that no more readings come. A client's reason has at most 123
bytes."""
CLOSE_SECONDS = 1.0
"""Time from our close frame to the end of the connection."""
MOST_FRAGMENTS = 1024
"""Frames of one message."""
SMALL_BYTES = 1 << 14
MOST_SMALL = 8
"""Messages that may wait without a pause of the connection."""
MOST_UNREAD_BYTES = 1 << 18
"""Answers to pings that a client does not read."""
MOST_UNPROVEN_BYTES = 320 << 10
"""Bytes that a client may send before the token: the largest state to resume, and a message's rest.
"""
UNPROVEN_BYTES = 4 << 20
"""Bytes that all clients before the token may have sent."""
READ_BYTES = 1 << 16
"""Bytes of one read. For asyncio's 256 KiB the C library maps memory and unmaps it again, at each
message."""


def close_code(problem: RequestError) -> int:
    """Return the close code for a refusal: that of its status, or 1008."""
    return {413: TOO_LARGE, 500: BROKEN, 503: BUSY}.get(problem.status, POLICY)


def refusal(reason: str) -> str:
    """Return the event that says why a session ends."""
    return pydantic_core.to_json({"event": "refused", "error": reason}).decode()


class Sockets:
    """The WebSockets of a service; uvicorn makes each by a call (its `ws_protocol_class`)."""

    def __init__(
        self,
        limits: StreamLimits,
        refused: Callable[[int], None],
        places: UnprovenPlaces,
        budget: Budget,
    ) -> None:
        """`refused` gets the close code of each WebSocket that the service itself closes.

        `places` are those of clients without the token, `budget` is that of all bodies.
        """
        self.limits = limits
        self.refused = refused
        self.places = places
        self.budget = budget
        self.unproven_budget = Budget(UNPROVEN_BYTES)
        self.proven: set[Socket] = set()
        self.ending = False
        """Whether the service ends: a session that began now would have no time to."""

    def end(self) -> None:
        """Take no more: the service ends."""
        self.ending = True

    @property
    def full(self) -> bool:
        """Whether there is no room, not even for one that only gets the reason."""
        return len(self.proven) >= self.limits.sessions + max(8, self.limits.sessions // 8)

    def __call__(self, **arguments: Any) -> "Socket":
        """Make the protocol of one connection (called by uvicorn)."""
        return Socket(self, **arguments)


class Socket(WebSocketsSansIOProtocol):
    """One connection.

    Names of uvicorn's that it overrides: `connection_made`, `connection_lost`, `shutdown`,
    `data_received`, `receive`, `send_receive_event_to_app`, `send`, `handle_cont`, `handle_ping`
    and `handle_parser_exception`. Those that it reads or sets: `app_state`, `close_sent`,
    `close_timeout`, `close_timer`, `conn`, `frames`, `handshake_complete`, `loop`, `queue`,
    `read_paused`, `stop_keepalive` and `transport`. The other names are ours.
    """

    def __init__(self, sockets: Sockets, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.app_state = {PROVE: self.prove}
        self._sockets = sockets
        self.close_timeout = CLOSE_SECONDS
        self._is_moving = False
        """Whether the session ends with the service and continues elsewhere."""
        self._has_refused = False
        self._is_over = False
        self._queued: deque[int] = deque()
        """Bytes of each message that the session has not taken."""
        self._held = 0
        """Bytes of its messages in the budget of the service."""

    def prove(self) -> None:
        """Count the connection among those of clients with the token."""
        if self in self._sockets.places:
            held_bytes = self._held
            self._hold(0)
            self._sockets.places.leave(self)
            self._sockets.proven.add(self)
            try:
                self._hold(held_bytes)
            except RequestError as problem:
                self._overfull(BUSY, problem.message)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the connection a place, and read less at once (overrides uvicorn's)."""
        address = (transport.get_extra_info("peername") or ("",))[0]
        # a connection of asyncio's; the interface does not name `abort`
        self._sockets.places.enter(self, address, transport.abort)  # type: ignore[attr-defined]
        if getattr(transport, "max_size", 0) > READ_BYTES:  # TLS has a buffer of its own
            transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no more (overrides uvicorn's)."""
        self._is_over = True
        self._hold(0)
        self._sockets.places.leave(self)
        self._sockets.proven.discard(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Notify the session that the service ends (overrides uvicorn's).

        The session closes the connection itself. Messages that came before belong to it. Later
        ones do not, and the client sends them again elsewhere.
        """
        if not self.handshake_complete or self.close_sent:
            super().shutdown()
            return
        self.stop_keepalive()
        self._is_moving = True
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": RESTART, "reason": SERVICE_ENDS}
        )

    def data_received(self, data: bytes) -> None:
        """Read no more after bytes that are no WebSocket, or too many (overrides uvicorn's)."""
        if self.conn.parser_exc is None and not self._is_over:
            super().data_received(data)
            self._count()

    async def receive(self) -> Any:
        """Return the next message for the session (overrides uvicorn's)."""
        message = await super().receive()
        if message["type"] == "websocket.receive" and self._queued:
            self._queued.popleft()
            self._count()
        return message

    def _count(self) -> None:
        """Have what this connection holds in the budget of its kind; refuse it beyond that."""
        if self._is_over:
            return
        frame_bytes = sum(map(len, self.frames))
        size = len(self.conn.reader.buffer) + frame_bytes + sum(self._queued)
        if self in self._sockets.places and size > MOST_UNPROVEN_BYTES:
            self._overfull(
                TOO_LARGE, f"expected at most {MOST_UNPROVEN_BYTES} bytes before the token"
            )
            return
        try:
            self._hold(size)
        except RequestError as problem:
            self._overfull(BUSY, problem.message)

    def _hold(self, size: int) -> None:
        """Change what it holds. Raises RequestError."""
        budget = self._sockets.budget
        if self in self._sockets.places:
            budget = self._sockets.unproven_budget
        budget.take(size - self._held)
        self._held = size

    def _overfull(self, code: int, reason: str) -> None:
        """End a connection that holds too much, and forget what it sent."""
        self._is_over = True
        self.frames = []
        self._queued.clear()
        self.conn.reader.buffer.clear()
        self._hold(0)
        self._refuse(code, reason)

    def send_receive_event_to_app(self) -> None:
        """Queue a whole message, unless too many wait (overrides uvicorn's)."""
        if self._is_moving:
            self.frames = []
            return
        waiting = self.queue.qsize()
        if not self.close_sent and waiting >= self._sockets.limits.queued:
            self.frames = []
            self._refuse(
                POLICY,
                f"too fast: {waiting} messages wait already: send slower, in larger messages",
            )
            return
        # uvicorn pauses reading for each message, which costs two calls of the kernel. It does not
        # where it believes that reading is paused: so a few small messages may wait.
        is_paused = self.read_paused
        is_small = sum(map(len, self.frames)) <= SMALL_BYTES
        may_wait = is_small and waiting < MOST_SMALL
        if may_wait:
            self.read_paused = True
        # raised for text that is not UTF-8, in one read with the client's own close
        size = sum(map(len, self.frames))
        with suppress(InvalidState):
            super().send_receive_event_to_app()
        if self.queue.qsize() > waiting:
            self._queued.append(size)
        if may_wait:
            self.read_paused = is_paused

    async def send(self, message: Any) -> None:
        """Send a message of the session (overrides uvicorn's).

        Where the connection refused the client itself, the session learns that it is over.
        """
        try:
            await super().send(message)
        except RuntimeError:
            if self._has_refused:
                raise ClientDisconnected from None
            raise

    def handle_cont(self, event: Frame) -> None:
        """Take a fragment; an empty one counts too (overrides uvicorn's)."""
        if len(self.frames) >= MOST_FRAGMENTS:
            self.frames = []
            self._refuse(TOO_LARGE, f"expected a message of at most {MOST_FRAGMENTS} frames")
        elif not self.close_sent:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        """Answer a ping, unless the client reads no answers (overrides uvicorn's)."""
        if self.transport.get_write_buffer_size() > MOST_UNREAD_BYTES:
            self.transport.abort()
            return
        super().handle_ping()

    def handle_parser_exception(self) -> None:
        """Say why the bytes are refused (overrides uvicorn's).

        They are no WebSocket, or more than a message may have. `websockets` has written its close
        frame.
        """
        if self.close_sent or self.conn.close_sent is None:
            self.transport.close()
            return
        code = self.conn.close_sent.code
        close = self.conn.data_to_send()
        if code == TOO_LARGE:
            reason = f"expected a message of at most {self._sockets.limits.message_bytes} bytes"
        else:
            reason = (
                "expected frames of RFC 6455 with text in UTF-8:"
                f" {self.conn.close_sent.reason or 'others came'}"
            )
        event = Frame(opcode=1, data=refusal(reason).encode())  # type: ignore[arg-type]
        self.transport.write(event.serialize(mask=False) + b"".join(close))
        self._leave(code)

    def _refuse(self, code: int, reason: str) -> None:
        if self.conn.state is not State.OPEN:  # the client's own close came with it, and is next
            return
        self.conn.send_text(refusal(reason).encode())
        self.conn.send_close(code)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self._leave(code)

    def _leave(self, code: int) -> None:
        """Let the client read why: a connection that closes with unread bytes resets."""
        self._sockets.refused(code)
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": ""})
        self.close_sent = True
        self._has_refused = True
        self.stop_keepalive()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)


async def text_of(websocket: WebSocket) -> str | None:
    """Return the next message, or None when the service ends. Raises RequestError."""
    message = await websocket.receive()
    if message.get("reason") == SERVICE_ENDS:
        return None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    text: str | None = message.get("text")
    if text is None:
        raise bad("expected text, got a binary message")
    return text


async def first_message(websocket: WebSocket, limits: StreamLimits) -> str:
    """Return the first message. Raises RequestError, and WebSocketDisconnect at its end."""
    seconds = limits.hello_seconds
    try:
        async with asyncio.timeout(seconds):
            text = await text_of(websocket)
    except TimeoutError:
        raise bad(f"expected the first message within {seconds:g} s") from None
    if text is None:  # it has no stream yet
        await websocket.close(RESTART)
        raise WebSocketDisconnect(RESTART)
    return text


async def first_with_token(websocket: WebSocket, limits: StreamLimits, token: str) -> str:
    """Return the first message of a client that sent no header, if it names the token.

    Raises as `first_message` does. Nothing else of it is looked at.
    """
    text = await first_message(websocket, limits)
    try:
        document: Any = pydantic_core.from_json(text)
    except ValueError as problem:
        raise bad(
            f'expected {{"schema": 1, "token": ...}} as the first message: {problem!s:.100}'
        ) from None
    client_token = None
    if isinstance(document, dict):
        client_token = document.get("token")
    if not isinstance(client_token, str) or not hmac.compare_digest(
        client_token.encode(), token.encode()
    ):
        raise bad("expected token in the first message: the token that `fab serve` names")
    return text


async def refuse(websocket: WebSocket, problem: RequestError, seconds: float) -> None:
    """Say why a session ends, and close it. A client may read nothing for so long."""
    with suppress(TimeoutError, WebSocketDisconnect):
        async with asyncio.timeout(seconds):
            await websocket.send_text(refusal(problem.message))
            await websocket.close(close_code(problem))
