"""`POST /v1/sensor-logger`: each recording of the app is a session.

The answer to a post has the events since the post before.
"""

import logging
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
from recognise.service.live.recordings import Recording, RecordingRegistry
from recognise.service.live.session import Kind, LiveSession
from recognise.service.serving import Serving
from recognise.stream import as_json
from recognise.stream.stream import MOST_READINGS

log = logging.getLogger(__name__)

POSTS_TO_BEGIN = 3


class PhoneRecording(Recording[sensor_logger.Post]):
    """One recording of the app, and its sensors."""

    def __init__(self, session: LiveSession, sign: float, of_watch: float, limits: Limits) -> None:
        super().__init__(session, limits)
        beside = sensor_logger.sensors_beside(session.settings.signals)
        names = [sensor_logger.BESIDE[kind][0] for kind in beside]
        self.merging = Merging(sign, session.settings.longest_gap_seconds, names)
        self.source: str | None = None
        """Whose sensors the recording is of, `phone` or `watch`: those that came first."""
        self._of_watch = of_watch
        self._posts = 0

    def readings(
        self, given: sensor_logger.Post
    ) -> tuple[int, Iterator[Readings], list[dict[str, Any]]]:
        """Return the readings that this post completes."""
        self.source = self.source or given.source
        sensors = sensor_logger.by_sensor(given, self.source, self._of_watch)
        readings, faults = self.merging.add(sensors)
        self._posts += 1

        def parts() -> Iterator[Readings]:
            for at in range(0, len(readings), MOST_READINGS):
                part = readings[at : at + MOST_READINGS]
                yield Readings.model_construct(
                    times=part[:, 0].tolist(), values=part[:, 1:].tolist()
                )

        return len(readings), parts(), [*(as_json(fault) for fault in faults), *self._missing()]

    def _missing(self) -> list[dict[str, Any]]:
        """Return the sensors that have sent nothing, as an event.

        It comes once, after the posts in which every sensor begins.
        """
        missing = self.merging.missing
        if self._posts != POSTS_TO_BEGIN or not missing:
            return []
        names = ", ".join(missing)
        log.warning(
            "a recording of Sensor Logger gets no label without %s: turn it on in the app", names
        )
        return [
            {
                "event": "missing",
                "sensors": missing,
                "detail": f"no label without {names}: turn it on in the app",
            }
        ]


def phone(query: sensor_logger.Query, sign: float, kind: Kind, serving: Serving) -> PhoneRecording:
    """Return a recording that begins. Raises RequestError."""
    settings = query.settings(serving.current.description, serving.limits.streams)
    session = LiveSession(kind, settings, serving)
    return PhoneRecording(session, sign, query.of_watch, serving.limits)


class Phones:
    """The endpoint of the app's posts over one model."""

    def __init__(self, serving: Serving, budget: Budget) -> None:
        self._serving = serving
        self._budget = budget
        limits = serving.limits
        self._body = replace(limits, body_bytes=limits.streams.message_bytes)
        self._recordings: RecordingRegistry[PhoneRecording] = RecordingRegistry(limits)

    def close(self) -> None:
        """Leave all sessions."""
        self._recordings.close()

    async def __call__(self, request: Request) -> Response:
        """Answer one post."""
        query = sensor_logger.query(
            {key: value for key, value in request.query_params.items() if key != "token"}
        )
        sign = query.sign(request.headers.get("user-agent", ""))
        async with whole_body(request, self._budget, self._body) as body:
            given = sensor_logger.post(body)

        def begin() -> PhoneRecording:
            return phone(query, sign, "sensor_logger", self._serving)

        found, events = await self._recordings.take(given.session, given, begin)
        answer = {
            "session": given.session,
            "model": self._serving.name,
            "version": found.session.version.number,
            "events": events,
            "missing": found.merging.missing,
            "source": found.source,
        }
        return Response(pydantic_core.to_json(answer), headers={"content-type": "application/json"})
