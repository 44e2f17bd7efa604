"""`WS /v1/stream`: the first message, then readings in and events out, until one side ends it."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from core.control.door import RateLimitedLog
from core.data.filters import inputs_of
from core.exported.description import labels_of
from core.ground.errors import UsageError
from recognise.service.guard import RESTART, close_code, first_message, refuse, send, text_of
from recognise.service.limits import RequestError, SessionPlaces, address_of, bad, given_way
from recognise.service.live import messages
from recognise.service.live.session import MOVED, LiveSession, Rate
from recognise.service.serving import Serving

log = logging.getLogger(__name__)

MOVE_SECONDS = 1.0
"""Time to send a session its state, beyond that to compute its windows."""


class LiveStreams:
    """The endpoint of WebSockets over one model."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._metrics = serving.metrics
        self._limits = serving.limits.streams
        self._places = SessionPlaces(self._limits.sessions)
        self._log = RateLimitedLog(log, logging.ERROR)
        self._is_ending = False
        self._listening: set[asyncio.Timeout] = set()
        """The waits for the next message of each session."""
        self._open: set[asyncio.Task[Any]] = set()

    async def end(self) -> None:
        """Have each session move: it takes no more messages, and gives its state away."""
        self._is_ending = True
        for listening in self._listening:
            listening.reschedule(0.0)
        if self._open:
            await asyncio.wait(self._open, timeout=self._limits.leave_seconds + MOVE_SECONDS)

    async def __call__(self, websocket: WebSocket, first: str | None = None) -> None:
        """Serve one session, from behind the handshake to its end.

        Its client has named the token: in the headers, or in the `first` message.
        """
        with suppress(WebSocketDisconnect):
            try:
                with self._place(websocket) as gives_way:
                    await self._session(websocket, first, gives_way)
            except RequestError as problem:
                await self._refuse(websocket, problem)
            except UsageError as problem:
                await self._refuse(websocket, bad(str(problem)))
            except Exception as problem:
                if isinstance(problem, WebSocketDisconnect):
                    raise
                self._log.say(f"a session failed: {type(problem).__name__}: {problem!s:.300}")
                await self._refuse(
                    websocket, RequestError(500, "the session failed: the service's log says why")
                )

    async def _session(
        self, websocket: WebSocket, first: str | None, gives_way: asyncio.Event
    ) -> None:
        limits = self._limits
        if first is None:
            first = await first_message(websocket, limits)
        hello = messages.hello(first)
        description = self._serving.current.description
        settings = hello.settings(description, limits)
        of = address_of(websocket.scope)
        session = LiveSession("stream", settings, self._serving, hello.resume, of)
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            inputs = inputs_of(settings.signals)
            ready = {
                "event": "ready",
                "model": self._serving.name,
                "version": session.version.number,
                "labels": labels_of(description),
                "sampling_hz": settings.sampling_hz,
                "window_steps": settings.window_steps,
                "filters": description.filters,
                "channels": inputs.channels,
                "units": inputs.units,
                "hop": settings.hop,
                "votes": settings.votes,
                "of": settings.of,
            }
            await send(websocket, ready)
            heard = _Heard(perf_counter())
            await _first_of(
                self._read(websocket, session, heard),
                _answer(websocket, session),
                heard.silence(limits.idle_seconds),
                _given_way(gives_way),
            )
        finally:
            self._open.discard(task)
            session.close()

    async def _read(self, websocket: WebSocket, session: LiveSession, heard: "_Heard") -> None:
        """Put every message into the session, as fast as its client may send."""
        limits = self._limits
        now = perf_counter()
        messages_rate = Rate("messages", limits.messages_per_second, limits.burst_messages, now)
        readings_rate = Rate("readings", limits.readings_per_second, limits.burst_readings, now)
        while (text := await self._next(websocket)) is not None:
            heard.at = arrived = perf_counter()
            messages_rate.take(1, arrived)
            readings = messages.readings(text, len(session.settings.readings.channels))
            readings_rate.take(len(readings.times), arrived)
            await session.take(readings, arrived)
        await session.leave(limits.leave_seconds)
        await asyncio.Event().wait()  # `_answer` ends the session

    async def _next(self, websocket: WebSocket) -> str | None:
        """Return the next message, or None when the service ends.

        Messages that have not been taken by then are sent again elsewhere.
        """
        if self._is_ending:
            when = 0.0
        else:
            when = None
        try:
            async with asyncio.timeout_at(when) as listening:
                self._listening.add(listening)
                return await text_of(websocket)
        except TimeoutError:
            return None
        finally:
            self._listening.discard(listening)

    @contextmanager
    def _place(self, websocket: WebSocket) -> Iterator[asyncio.Event]:
        gives_way = asyncio.Event()
        self._places.enter(websocket, address_of(websocket.scope), gives_way.set)
        try:
            yield gives_way
        finally:
            self._places.leave(websocket)

    async def _refuse(self, websocket: WebSocket, problem: RequestError) -> None:
        self._metrics.session_refused(close_code(problem))
        await refuse(websocket, problem, self._limits.room_seconds)


@dataclass
class _Heard:
    """The time of the client's last message.

    One timer a session: one a message would cost as much as the message.
    """

    at: float

    async def silence(self, seconds: float) -> None:
        """Wait for that long a silence. Raises RequestError."""
        while (remaining_seconds := self.at + seconds - perf_counter()) > 0:
            await asyncio.sleep(remaining_seconds)
        raise bad(f"expected the next readings within {seconds:g} s")


async def _given_way(gives_way: asyncio.Event) -> None:
    await gives_way.wait()
    raise given_way()


async def _answer(websocket: WebSocket, session: LiveSession) -> None:
    """Send every event of the session; after the last one the connection closes."""
    last = None
    while last != MOVED:
        for event in await session.events():
            last = event["event"]
            await send(websocket, event)
    await websocket.close(RESTART)


async def _first_of(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, and raise what that raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
