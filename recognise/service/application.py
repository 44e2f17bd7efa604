"""The paths of the Open Inference Protocol v2, and `/metrics`.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol describes the protocol. Every answer
that is not 200 is its error object, `{"error": WORDS}`.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from cluster import __version__
from cluster.control.door import RateLimitedLog
from cluster.exported.description import labels_of
from recognise.service.answers import HEADER_LENGTH, answer, outputs_of
from recognise.service.bodies import Budget, whole_body
from recognise.service.guard import SENSOR_LOGGER, STREAM
from recognise.service.limits import Limits
from recognise.service.live.opening import LiveSessions
from recognise.service.loading import shape_of
from recognise.service.metrics import ServiceMetrics
from recognise.service.page import files
from recognise.service.refusals import RefusedError, bad
from recognise.service.serving import Served, Serving
from recognise.service.tensors import FLOAT, WINDOWS, question

log = logging.getLogger(__name__)

SERVER = "pscluster"
EXTENSIONS = ("binary_tensor_data",)
PLATFORMS = {"onnx": "onnxruntime_onnx", "litert": "litert_tflite"}
RETRY = {"retry-after": "1"}
_INLINE_BYTES = 65_536
"""A body up to this size is parsed in the event loop; a larger one would hold up the others."""


class Application:
    """The endpoints over one model."""

    def __init__(
        self,
        serving: Serving,
        metrics: ServiceMetrics,
        limits: Limits,
        token: str | None,
        authority: Path | None = None,
    ) -> None:
        """`authority`: the certificate that the page offers to phones."""
        self._authority = authority
        self._serving, self._metrics, self._limits = serving, metrics, limits
        self._budget = Budget(limits.held_bytes)
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="parser")
        """One thread: the objects of one large body at a time."""
        self._log = RateLimitedLog(log, logging.ERROR)
        self._live = LiveSessions(serving, metrics, limits, token, self._budget)

    def close(self) -> None:
        """End the sessions of phones, and the thread."""
        self._live.close()
        self._parser.shutdown()

    def starlette(self) -> Starlette:
        """The ASGI application."""
        model = "/v2/models/{model}"
        version = model + "/versions/{version}"
        both = [(model, ""), (version, "")]
        made = Starlette(
            routes=[
                Route("/v2", self._server),
                Route("/v2/health/live", self._health),
                Route("/v2/health/ready", self._health),
                *(Route(path, self._model) for path, _ in both),
                *(Route(f"{path}/ready", self._ready) for path, _ in both),
                *(Route(f"{path}/infer", self._infer, methods=["POST"]) for path, _ in both),
                Route("/metrics", self._exposition),
                Route(SENSOR_LOGGER, self._sensor_logger, methods=["POST"]),
                WebSocketRoute(STREAM, self._stream),
                *files.routes(self._authority),
            ],
            exception_handlers={RefusedError: _refused, HTTPException: _http, Exception: self._broken},
        )
        made.router.redirect_slashes = False  # a redirect would repeat the Host that a client made up
        return made

    async def _server(self, _request: Request) -> Response:
        return JSONResponse({"name": SERVER, "version": __version__, "extensions": list(EXTENSIONS)})

    async def _health(self, request: Request) -> Response:
        """The port opens once a version is warm, so a service that answers is ready."""
        return JSONResponse({request.url.path.rpartition("/")[2]: True})

    async def _model(self, request: Request) -> Response:
        description = self._named(request).description
        shape = shape_of(description)
        return JSONResponse(
            {
                "name": self._serving.name,
                "versions": [str(number) for number in self._serving.numbers],
                "platform": PLATFORMS.get(description.format, description.format),
                "inputs": [{"name": WINDOWS, "datatype": FLOAT, "shape": [-1, shape.samples, shape.channels]}],
                "outputs": outputs_of(description.output.classes),
                "parameters": {
                    "labels": list(labels_of(description)),
                    "channels": list(description.input.channels),
                    "unit": description.input.unit,
                    "sampling_hz": description.sampling_hz,
                    "filters": description.filters,
                    "run": description.run.folder,
                    "sha256": description.sha256,
                },
            }
        )

    async def _ready(self, request: Request) -> Response:
        served = self._named(request)
        return JSONResponse({"name": self._serving.name, "version": str(served.number), "ready": True})

    async def _infer(self, request: Request) -> Response:
        served = self._named(request)
        header_bytes = _header_bytes(request)
        async with whole_body(request, self._budget, self._limits) as body:
            content, headers = await self._answered(served, body, header_bytes)
        return Response(content, headers=headers)

    async def _answered(self, served: Served, body: bytes, header_bytes: int | None) -> tuple[bytes, dict[str, str]]:
        shape = shape_of(served.description)
        if len(body) <= _INLINE_BYTES:
            asked = question(body, header_bytes, shape, self._limits)
        else:
            loop = asyncio.get_running_loop()
            asked = await loop.run_in_executor(self._parser, question, body, header_bytes, shape, self._limits)
        seconds = min(self._limits.compute_seconds, asked.timeout_seconds or self._limits.compute_seconds)
        try:
            async with asyncio.timeout(seconds):
                logits = await served.batcher.logits(asked.windows)
        except TimeoutError:
            raise RefusedError(504, f"no answer within {seconds:g} s: send fewer windows, or ask again later") from None
        labels = labels_of(served.description)
        return answer(asked, logits, labels, self._serving.name, served.number)

    async def _stream(self, websocket: WebSocket) -> None:
        await self._live.stream(websocket)

    async def _sensor_logger(self, request: Request) -> Response:
        return await self._live.sensor_logger(request)

    async def _exposition(self, request: Request) -> Response:
        content, kind = self._metrics.exposition(request.headers.get("accept", ""))
        return Response(content, headers={"content-type": kind})

    def _named(self, request: Request) -> Served:
        model, version = request.path_params["model"], request.path_params.get("version")
        if model != self._serving.name:
            raise RefusedError(404, f"expected the model {self._serving.name}, got {model!r:.60}")
        served = self._serving.version(version)
        if served is None:
            numbers = ", ".join(map(str, self._serving.numbers))
            raise RefusedError(404, f"expected an open version of {model}, {numbers}, got {version!r:.60}")
        return served

    async def _broken(self, _request: Request, problem: Exception) -> Response:
        self._log.say(f"a request failed: {type(problem).__name__}: {problem!s:.300}")
        return JSONResponse({"error": "the answer failed: the service's log says why"}, 500)


def _header_bytes(request: Request) -> int | None:
    given = request.headers.getlist(HEADER_LENGTH)
    if not given:
        return None
    if len(given) > 1 or not given[0].isascii() or not given[0].isdecimal() or len(given[0]) > 9:
        raise bad(f"{HEADER_LENGTH}: expected one number, got {', '.join(given)!r:.60}")
    return int(given[0])


async def _refused(_request: Request, problem: Any) -> Response:
    return JSONResponse({"error": problem.words}, problem.status, RETRY if problem.status == 503 else None)


async def _http(_request: Request, problem: Any) -> Response:
    words = {
        404: "expected /v2, /v2/health/live, /v2/health/ready, /v2/models/MODEL[/versions/VERSION][/ready|/infer], "
        "/metrics, /v1/sensor-logger or a WebSocket to /v1/stream",
        405: f"expected another method: {(problem.headers or {}).get('Allow', 'GET')}",
    }
    return JSONResponse({"error": words.get(problem.status_code, problem.detail)}, problem.status_code, problem.headers)
