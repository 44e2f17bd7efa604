"""The WebSocket connections: uvicorn's, with bounds of their own, and a reason for each end."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pydantic_core
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame
from websockets.protocol import State

from recognise.service.limits import StreamLimits

POLICY, TOO_LARGE, BROKEN, RESTART, BUSY = 1008, 1009, 1011, 1012, 1013
"""Close codes: RFC 6455, and its registry for 1012 and 1013."""
SERVICE_ENDS = "the service ends".ljust(124)
"""Reason by which a session learns that no more readings come. A client's has at most 123 bytes."""
INVALID_TEXT = 1007
CLOSE_SECONDS = 1.0
"""From our close frame to the end of the connection."""
MOST_FRAGMENTS = 1024
"""Frames of one message."""
SMALL_BYTES, MOST_SMALL = 1 << 14, 8
"""Messages that may wait without a pause of the connection."""
MOST_UNREAD_BYTES = 1 << 18
"""Answers to pings that a client does not read."""
READ_BYTES = 1 << 16
"""What one read takes. For asyncio's 256 KiB the C library maps memory and unmaps it again, at each message."""


def refusal(words: str) -> str:
    """The event before the end of a session: why it ends."""
    return pydantic_core.to_json({"event": "refused", "error": words}).decode()


class Sockets:
    """Makes the connections of WebSockets for uvicorn, and knows how many there are."""

    def __init__(self, limits: StreamLimits, refused: Callable[[int], None]) -> None:
        """`refused` gets the close code of each one that a connection refuses itself."""
        self.limits, self.refused = limits, refused
        self.open: set[Socket] = set()
        self.ending = False
        """Whether the service ends: a session that began now would have no time to."""

    def end(self) -> None:
        """Take no more: the service ends."""
        self.ending = True

    @property
    def full(self) -> bool:
        """Whether there is no room, not even for one that only gets the reason."""
        return len(self.open) >= self.limits.sessions + max(8, self.limits.sessions // 8)

    def __call__(self, **given: Any) -> "Socket":
        """See uvicorn's `ws_protocol_class`."""
        return Socket(self, **given)


class Socket(WebSocketsSansIOProtocol):
    """One connection."""

    def __init__(self, sockets: Sockets, **given: Any) -> None:
        super().__init__(**given)
        self._sockets = sockets
        self.close_timeout = CLOSE_SECONDS
        self.is_leaving = False
        self._has_refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._sockets.open.add(self)
        if getattr(transport, "max_size", 0) > READ_BYTES:  # TLS has a buffer of its own
            transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._sockets.open.discard(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The service ends: the session says where its stream stands, and closes the connection itself.

        What came before is still its; what comes now is not, and the client sends it again elsewhere.
        """
        if not self.handshake_complete or self.close_sent:
            super().shutdown()
            return
        self.stop_keepalive()
        self.is_leaving = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": RESTART, "reason": SERVICE_ENDS})

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if self.conn.parser_exc is None:  # else it is closing, and what comes is left
            super().data_received(data)

    def send_receive_event_to_app(self) -> None:
        """A message is whole."""
        if self.is_leaving:
            self.frames = []
            return
        waiting = self.queue.qsize()
        if self.close_sent or waiting < self._sockets.limits.queued:
            # uvicorn pauses reading for each message, which costs two calls of the kernel. A few small ones may wait.
            is_paused, is_small = self.read_paused, sum(map(len, self.frames)) <= SMALL_BYTES
            may_wait = is_small and waiting < MOST_SMALL
            self.read_paused = is_paused or may_wait
            with suppress(InvalidState):  # text that is not UTF-8, in one read with the client's own close
                super().send_receive_event_to_app()
            self.read_paused = is_paused if may_wait else self.read_paused
            return
        self.frames = []
        self._refuse(POLICY, f"too fast: {self.queue.qsize()} messages wait already: send slower, in larger messages")

    async def send(self, message: Any) -> None:
        """See ASGI. Where the connection refused the client itself, the session learns that it is over."""
        try:
            await super().send(message)
        except RuntimeError:
            if self._has_refused:
                raise ClientDisconnected from None
            raise

    def handle_cont(self, event: Frame) -> None:
        """A fragment came; an empty one costs nothing but its place in the list."""
        if len(self.frames) >= MOST_FRAGMENTS:
            self.frames = []
            self._refuse(TOO_LARGE, f"expected a message of at most {MOST_FRAGMENTS} frames")
        elif not self.close_sent:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        """Answer it, unless the client reads no answers."""
        if self.transport.get_write_buffer_size() > MOST_UNREAD_BYTES:
            self.transport.abort()
            return
        super().handle_ping()

    def handle_parser_exception(self) -> None:
        """The bytes are no WebSocket, or more than a message may have; `websockets` has written its close frame."""
        if self.close_sent or self.conn.close_sent is None:
            self.transport.close()
            return
        code = self.conn.close_sent.code
        close = self.conn.data_to_send()
        if code == TOO_LARGE:
            words = f"expected a message of at most {self._sockets.limits.message_bytes} bytes"
        else:
            words = f"expected frames of RFC 6455 with text in UTF-8: {self.conn.close_sent.reason or 'others came'}"
        event = Frame(opcode=1, data=refusal(words).encode())  # type: ignore[arg-type]
        self.transport.write(event.serialize(mask=False) + b"".join(close))
        self._sockets.refused(code)
        self._leave(code)

    def _refuse(self, code: int, words: str) -> None:
        if self.conn.state is not State.OPEN:  # the client's own close came with it, and is next
            return
        self.conn.send_text(refusal(words).encode())
        self._sockets.refused(code)
        self._end(code)
        self._leave(code)

    def _end(self, code: int) -> None:
        self.conn.send_close(code)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": ""})

    def _leave(self, code: int) -> None:
        """Let the client read why: a connection that closes with unread bytes resets."""
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": ""})
        self.close_sent = self._has_refused = True
        self.stop_keepalive()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)
