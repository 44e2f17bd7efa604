"""`POST /v1/sensor-logger`: each recording of the app is a session.

The answer to a post has the events since the post before.
"""

from dataclasses import replace

import pydantic_core
from starlette.requests import Request
from starlette.responses import Response

from recognise.service.bodies import Budget, whole_body
from recognise.service.live import sensor_logger
from recognise.service.live.recordings import PhoneRecording, RecordingRegistry
from recognise.service.live.session import LiveSession
from recognise.service.places import address_of
from recognise.service.serving import Serving


def phone(
    query: sensor_logger.Query, sign: float, serving: Serving, address: str
) -> PhoneRecording:
    """Return a recording that begins, of a client at `address`. Raises RequestError."""
    settings = query.settings(serving.current.description, serving.limits.streams)
    session = LiveSession("sensor_logger", settings, serving, of=address)
    return PhoneRecording(session, sign, query.of_watch, serving.limits)


class Phones:
    """The endpoint of the app's posts over one model."""

    def __init__(self, serving: Serving, budget: Budget) -> None:
        self._serving = serving
        self._budget = budget
        limits = serving.limits
        self._body = replace(limits, body_bytes=limits.streams.message_bytes)
        self._recordings: RecordingRegistry = RecordingRegistry(limits)

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
            post = sensor_logger.post(body)

        address = address_of(request.scope)

        def begin() -> PhoneRecording:
            return phone(query, sign, self._serving, address)

        recording, events = await self._recordings.take(post.session, post, begin, address)
        answer = {
            "session": post.session,
            "model": self._serving.name,
            "version": recording.session.version.number,
            "events": events,
            "missing": recording.merging.missing,
            "source": recording.source,
        }
        return Response(pydantic_core.to_json(answer), headers={"content-type": "application/json"})
