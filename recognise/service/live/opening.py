"""The endpoints of live sessions, imported at the first one: SciPy's filters take 50 MB that other services spare."""

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from recognise.service.bodies import Budget
from recognise.service.limits import Limits
from recognise.service.memory import keep_what_there_is
from recognise.service.metrics import ServiceMetrics
from recognise.service.serving import Serving

if TYPE_CHECKING:
    from recognise.service.live.endpoint import LiveStreams
    from recognise.service.live.phones import Phones


class LiveSessions:
    """Both endpoints over one model."""

    def __init__(
        self, serving: Serving, metrics: ServiceMetrics, limits: Limits, token: str | None, budget: Budget
    ) -> None:
        """`token`: what a client must send that had no Authorization header; None: nothing."""
        self._serving, self._metrics, self._limits = serving, metrics, limits
        self._token, self._budget = token, budget
        self._opening: asyncio.Future[tuple[type[LiveStreams], type[Phones]]] | None = None
        self._streams: LiveStreams | None = None
        self._phones: Phones | None = None

    def close(self) -> None:
        """End the sessions of phones; those of WebSockets end with their connections."""
        if self._phones is not None:
            self._phones.close()

    async def stream(self, websocket: WebSocket) -> None:
        """`WS /v1/stream`. The handshake ends first: the import takes seconds on a slow machine."""
        await websocket.accept()
        streams, _ = await self._opened()
        await streams(websocket)

    async def sensor_logger(self, request: Request) -> Response:
        """`POST /v1/sensor-logger`."""
        _, phones = await self._opened()
        return await phones(request)

    async def _opened(self) -> "tuple[LiveStreams, Phones]":
        if self._streams is None or self._phones is None:
            if self._opening is None:
                self._opening = asyncio.ensure_future(asyncio.to_thread(_imported))
            streams, phones = await asyncio.shield(self._opening)
            if self._streams is None or self._phones is None:  # another request waited for the import too
                self._streams = streams(self._serving, self._metrics, self._limits, self._token)
                self._phones = phones(self._serving, self._metrics, self._limits, self._budget)
        return self._streams, self._phones


def _imported() -> "tuple[type[LiveStreams], type[Phones]]":
    from recognise.service.live.endpoint import LiveStreams
    from recognise.service.live.phones import Phones

    keep_what_there_is()
    return LiveStreams, Phones
