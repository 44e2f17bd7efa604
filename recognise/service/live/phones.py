"""`POST /v1/sensor-logger`: a session for each recording of the app; a post gets the events since the one before."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pydantic_core
from starlette.requests import Request
from starlette.responses import Response

from recognise.service.bodies import Budget, whole_body
from recognise.service.limits import Limits
from recognise.service.live import sensor_logger
from recognise.service.live.merging import Merging
from recognise.service.live.messages import Readings
from recognise.service.live.recordings import Recording, Recordings
from recognise.service.live.session import Kind, Session
from recognise.service.metrics import ServiceMetrics
from recognise.service.serving import Serving
from recognise.stream import as_json
from recognise.stream.stream import MOST_READINGS


class Phone(Recording[sensor_logger.Post]):
    """One recording of the app, and its sensors."""

    def __init__(self, session: Session, sign: float, limits: Limits) -> None:
        super().__init__(session, limits)
        self.merging = Merging(sign, session.settings.longest_gap_seconds)

    def readings(self, given: sensor_logger.Post) -> tuple[int, Iterator[Readings], list[dict[str, Any]]]:
        """See `Recording`."""
        acceleration, rotation, faults = self.merging.add(sensor_logger.by_sensor(given))

        def parts() -> Iterator[Readings]:
            for at in range(0, len(acceleration), MOST_READINGS):
                part = slice(at, at + MOST_READINGS)
                yield Readings.model_construct(
                    times=acceleration[part, 0].tolist(),
                    acceleration=acceleration[part, 1:].tolist(),
                    rotation=rotation[part, 1:].tolist(),
                )

        return len(acceleration), parts(), [as_json(fault) for fault in faults]


def phone(
    query: sensor_logger.Query, sign: float, kind: Kind, serving: Serving, metrics: ServiceMetrics, limits: Limits
) -> Phone:
    """A recording that begins. Raises RefusedError."""
    settings = query.settings(serving.current.description, limits.streams)
    return Phone(Session(kind, settings, serving, metrics, limits), sign, limits)


class Phones:
    """The endpoint over one model."""

    def __init__(self, serving: Serving, metrics: ServiceMetrics, limits: Limits, budget: Budget) -> None:
        self._serving, self._metrics, self._limits, self._budget = serving, metrics, limits, budget
        self._body = replace(limits, body_bytes=limits.streams.message_bytes)
        self._recordings: Recordings[Phone] = Recordings(limits)

    def close(self) -> None:
        """Leave all sessions."""
        self._recordings.close()

    async def __call__(self, request: Request) -> Response:
        """One post."""
        query = sensor_logger.query({key: value for key, value in request.query_params.items() if key != "token"})
        sign = query.sign(request.headers.get("user-agent", ""))
        async with whole_body(request, self._budget, self._body) as body:
            given = sensor_logger.post(body)

        def begin() -> Phone:
            return phone(query, sign, "sensor_logger", self._serving, self._metrics, self._limits)

        found, events = await self._recordings.take(given.session, given, begin)
        answer = {
            "session": given.session,
            "model": self._serving.name,
            "version": found.session.version.number,
            "events": events,
            "missing": found.merging.missing,
        }
        return Response(pydantic_core.to_json(answer), headers={"content-type": "application/json"})
