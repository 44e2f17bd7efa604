"""`POST /v1/sensor-logger`: a session for each recording of the app; a post gets the events since the one before."""

import asyncio
from collections import deque
from dataclasses import replace
from time import perf_counter
from typing import Any

import pydantic_core
from starlette.requests import Request
from starlette.responses import Response

from recognise.service.bodies import Budget, whole_body
from recognise.service.limits import Limits
from recognise.service.live import sensor_logger
from recognise.service.live.merging import Merging
from recognise.service.live.messages import Readings
from recognise.service.live.rate import Rate
from recognise.service.live.session import Session
from recognise.service.metrics import ServiceMetrics
from recognise.service.refusals import RefusedError
from recognise.service.serving import Serving
from recognise.stream import as_json
from recognise.stream.stream import MOST_READINGS

MOST_EVENTS = 1024
"""Of one post; the oldest go."""


class _Phone:
    """One recording: its sensors, its session, and the events that no post has taken."""

    def __init__(self, session: Session, sign: float, limits: Limits) -> None:
        self.lock = asyncio.Lock()
        self.heard = perf_counter()
        self.session = session
        self.merging = Merging(sign, session.settings.longest_gap_seconds)
        streams = limits.streams
        self._rate = Rate("readings", streams.readings_per_second, streams.burst_readings, self.heard)
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._hearing = asyncio.ensure_future(self._hear())

    async def take(self, given: sensor_logger.Post) -> list[dict[str, Any]]:
        """The events of this post. Raises RefusedError; the recording then begins again."""
        arrived = self.heard
        acceleration, rotation, faults = self.merging.add(sensor_logger.by_sensor(given))
        self._rate.take(len(acceleration), arrived)
        self._events += [as_json(fault) for fault in faults]
        for at in range(0, len(acceleration), MOST_READINGS):
            part = slice(at, at + MOST_READINGS)
            readings = Readings.model_construct(
                times=acceleration[part, 0].tolist(),
                acceleration=acceleration[part, 1:].tolist(),
                rotation=rotation[part, 1:].tolist(),
            )
            await self.session.take(readings, arrived)
        answered = asyncio.ensure_future(self.session.answered())
        try:
            await asyncio.wait({answered, self._hearing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered.cancel()
        if self._hearing.done():
            self._hearing.result()
        found = list(self._events)
        self._events.clear()
        return found

    def close(self) -> None:
        """Leave it. Once."""
        self._hearing.cancel()
        self.session.close()

    async def _hear(self) -> None:
        while True:
            self._events += await self.session.events()


class Phones:
    """The endpoint over one model."""

    def __init__(self, serving: Serving, metrics: ServiceMetrics, limits: Limits, budget: Budget) -> None:
        self._serving, self._metrics, self._limits, self._budget = serving, metrics, limits, budget
        self._body = replace(limits, body_bytes=limits.streams.message_bytes)
        self._open: dict[str, _Phone] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def close(self) -> None:
        """Leave all sessions."""
        for name in list(self._open):
            self._end(name)

    async def __call__(self, request: Request) -> Response:
        """One post."""
        query = sensor_logger.query({key: value for key, value in request.query_params.items() if key != "token"})
        sign = query.sign(request.headers.get("user-agent", ""))
        async with whole_body(request, self._budget, self._body) as body:
            given = sensor_logger.post(body)
        phone = self._open.get(given.session) or self._begin(given.session, query, sign)
        async with phone.lock:
            phone.heard = perf_counter()
            try:
                events = await phone.take(given)
            except RefusedError:
                self._end(given.session)
                raise
        answer = {
            "session": given.session,
            "model": self._serving.name,
            "version": phone.session.version.number,
            "events": events,
            "missing": phone.merging.missing,
        }
        return Response(pydantic_core.to_json(answer), headers={"content-type": "application/json"})

    def _begin(self, name: str, query: sensor_logger.Query, sign: float) -> _Phone:
        limits = self._limits.streams
        if len(self._open) >= limits.sessions:
            raise RefusedError(503, f"{limits.sessions} sessions are open already: come again later")
        settings = query.settings(self._serving.current.description, limits)
        session = Session("sensor_logger", settings, self._serving, self._metrics, self._limits)
        phone = self._open[name] = _Phone(session, sign, self._limits)
        self._look_after(name, limits.idle_seconds)
        return phone

    def _look_after(self, name: str, seconds: float) -> None:
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, self._look, name)

    def _look(self, name: str) -> None:
        phone, idle = self._open[name], self._limits.streams.idle_seconds
        left = phone.heard + idle - perf_counter()
        if left <= 0 and not phone.lock.locked():
            self._end(name)
        else:
            self._look_after(name, max(left, 1.0))

    def _end(self, name: str) -> None:
        phone = self._open.pop(name, None)
        if phone is None:  # another post of it was refused before
            return
        self._timers.pop(name).cancel()
        phone.close()
