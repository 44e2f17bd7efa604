"""`WS /v1/stream`: the first message, then readings in and events out, until one side ends it."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import pydantic_core
from starlette.websockets import WebSocket, WebSocketDisconnect

from cluster.control.door import RateLimitedLog
from cluster.errors import UsageError
from cluster.exported.description import labels_of
from recognise.service.limits import Limits
from recognise.service.live import messages
from recognise.service.live.rate import Rate
from recognise.service.live.session import MOVED, Session
from recognise.service.live.sockets import BROKEN, BUSY, POLICY, RESTART, SERVICE_ENDS, TOO_LARGE, refusal
from recognise.service.metrics import ServiceMetrics
from recognise.service.refusals import RefusedError, bad
from recognise.service.serving import Serving

log = logging.getLogger(__name__)

_CODES = {413: TOO_LARGE, 500: BROKEN, 503: BUSY}
"""Of a status; the others are 1008."""


class LiveStreams:
    """The endpoint over one model."""

    def __init__(self, serving: Serving, metrics: ServiceMetrics, limits: Limits, token: str | None) -> None:
        """`token`: what a client must send that had no Authorization header; None: nothing."""
        self._serving, self._metrics, self._limits, self._token = serving, metrics, limits, token
        self._open = 0
        self._log = RateLimitedLog(log, logging.ERROR)

    async def __call__(self, websocket: WebSocket) -> None:
        """One session, from behind the handshake to its end. `Guarded` has looked at the handshake's headers."""
        with suppress(WebSocketDisconnect):
            try:
                with self._place():
                    await self._session(websocket)
            except RefusedError as problem:
                await self._refuse(websocket, problem)
            except UsageError as problem:
                await self._refuse(websocket, bad(str(problem)))
            except Exception as problem:
                if isinstance(problem, WebSocketDisconnect):
                    raise
                self._log.say(f"a session failed: {type(problem).__name__}: {problem!s:.300}")
                await self._refuse(websocket, RefusedError(500, "the session failed: the service's log says why"))

    async def _session(self, websocket: WebSocket) -> None:
        limits = self._limits.streams
        hello = messages.hello(await self._first(websocket))
        if self._token is not None and "authorization" not in websocket.headers and not hello.may_come(self._token):
            raise bad("expected token in the first message: the token that `fab serve` names")
        description = self._serving.current.description
        settings = hello.settings(description, limits)
        session = Session("stream", settings, self._serving, self._metrics, self._limits, hello.resume)
        try:
            ready = {
                "event": "ready",
                "model": self._serving.name,
                "version": session.version.number,
                "labels": labels_of(description),
                "sampling_hz": settings.sampling_hz,
                "window_steps": settings.window_steps,
                "filters": description.filters,
                "hop": settings.hop,
                "votes": settings.votes,
                "of": settings.of,
            }
            await websocket.send_text(pydantic_core.to_json(ready).decode())
            heard = _Heard(perf_counter())
            await _first_of(
                self._read(websocket, session, heard),
                _answer(websocket, session),
                heard.silence(limits.idle_seconds),
            )
        finally:
            session.close()

    async def _first(self, websocket: WebSocket) -> str:
        seconds = self._limits.streams.hello_seconds
        try:
            async with asyncio.timeout(seconds):
                text = await _text(websocket)
        except TimeoutError:
            raise bad(f"expected the first message within {seconds:g} s") from None
        if text is None:  # it has no stream yet
            await websocket.close(RESTART)
            raise WebSocketDisconnect(RESTART)
        return text

    async def _read(self, websocket: WebSocket, session: Session, heard: "_Heard") -> None:
        """Every message into the session, as fast as its client may."""
        limits = self._limits.streams
        now = perf_counter()
        messages_rate = Rate("messages", limits.messages_per_second, limits.burst_messages, now)
        readings_rate = Rate("readings", limits.readings_per_second, limits.burst_readings, now)
        while (text := await _text(websocket)) is not None:
            heard.at = arrived = perf_counter()
            messages_rate.take(1, arrived)
            given = messages.readings(text)
            readings_rate.take(len(given.times), arrived)
            await session.take(given, arrived)
        await session.leave(limits.leave_seconds)
        await asyncio.Event().wait()  # `_answer` ends the session

    @contextmanager
    def _place(self) -> Iterator[None]:
        most = self._limits.streams.sessions
        if self._open >= most:
            raise RefusedError(503, f"{most} sessions are open already: come again later")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    async def _refuse(self, websocket: WebSocket, problem: RefusedError) -> None:
        code = _CODES.get(problem.status, POLICY)
        self._metrics.session_refused(code)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.streams.room_seconds):  # a client may read nothing
                await websocket.send_text(refusal(problem.words))
                await websocket.close(code)


@dataclass
class _Heard:
    """When the client said something last. One timer a session: one a message would cost as much as the message."""

    at: float

    async def silence(self, seconds: float) -> None:
        """Wait for that long a silence. Raises RefusedError."""
        while (left := self.at + seconds - perf_counter()) > 0:
            await asyncio.sleep(left)
        raise bad(f"expected the next readings within {seconds:g} s")


async def _text(websocket: WebSocket) -> str | None:
    """The next message; None when the service ends."""
    message = await websocket.receive()
    if message.get("reason") == SERVICE_ENDS:
        return None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    text: str | None = message.get("text")
    if text is None:
        raise bad("expected text, got a binary message")
    return text


async def _answer(websocket: WebSocket, session: Session) -> None:
    """Every event of the session to its client; after the last one the connection closes."""
    last = None
    while last != MOVED:
        for event in await session.events():
            last = event["event"]
            await websocket.send_text(pydantic_core.to_json(event).decode())
    await websocket.close(RESTART)


async def _first_of(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, and raise what that raised."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
