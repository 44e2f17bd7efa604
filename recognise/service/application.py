"""The paths of the Open Inference Protocol v2, and `/metrics`.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol describes the
protocol. Every answer that is not 200 is its error object, `{"error": WORDS}`.
"""

import asyncio
import logging
import re
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pydantic_core
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from core import __version__
from core.control.door import RateLimitedLog
from core.exported.description import labels_of
from core.exported.runtimes import softmax
from core.web.entrance import prove
from recognise.plausibility import signals_of, windows_problem
from recognise.service.guard import SENSOR_LOGGER, STREAM, close_code, first_with_token, refuse
from recognise.service.limits import (
    Budget,
    RequestError,
    address_of,
    bad,
    keep_what_there_is,
    whole_body,
)
from recognise.service.page import files
from recognise.service.serving import Served, Serving
from recognise.service.tensors import (
    FLOAT,
    LABELS,
    LOGITS,
    PROBABILITIES,
    WINDOWS,
    Question,
    question,
)

if TYPE_CHECKING:
    from recognise.service.live.endpoint import LiveStreams
    from recognise.service.live.recordings import Phones


HEADER_LENGTH = "Inference-Header-Content-Length"
_LENGTH = re.compile(r"[0-9]{1,9}")
JSON = "application/json"
BINARY = "application/octet-stream"


def answer(
    question: Question, logits: NDArray[np.float32], labels: Sequence[str], model: str, version: int
) -> tuple[bytes, dict[str, str]]:
    """Return the body of the answer and its headers. `logits` has the shape (windows, classes).

    Raises RequestError where the logits are not finite: huge numbers went in.
    """
    if not np.isfinite(logits).all():
        raise bad(
            "the model's logits for these windows are not finite: expected acceleration and"
            " rotation, not these"
        )
    outputs: list[dict[str, Any]] = []
    binary: list[bytes] = []
    for output in question.outputs:
        datatype, shape, data, raw = _tensor(output.name, logits, labels)
        described: dict[str, Any] = {"name": output.name, "datatype": datatype, "shape": shape}
        if output.binary:
            described["parameters"] = {"binary_data_size": len(raw)}
            binary.append(raw)
        else:
            described["data"] = data
        outputs.append(described)
    document: dict[str, Any] = {"model_name": model, "model_version": str(version)}
    if question.id is not None:
        document["id"] = question.id
    head = pydantic_core.to_json({**document, "outputs": outputs})
    if not binary:
        return head, {"content-type": JSON}
    return b"".join((head, *binary)), {"content-type": BINARY, HEADER_LENGTH: str(len(head))}


def outputs_of(classes: int) -> list[dict[str, object]]:
    """Return the outputs as the model's metadata name them."""
    return [
        {"name": LOGITS, "datatype": FLOAT, "shape": [-1, classes]},
        {"name": PROBABILITIES, "datatype": FLOAT, "shape": [-1, classes]},
        {"name": LABELS, "datatype": "BYTES", "shape": [-1]},
    ]


def _tensor(
    name: str, logits: NDArray[np.float32], labels: Sequence[str]
) -> tuple[str, Sequence[int], list[Any], bytes]:
    """Return the datatype of an output, its shape, its values, and these as a binary tensor."""
    if name == LABELS:
        window_labels = [labels[index] for index in logits.argmax(axis=1)]
        return "BYTES", [len(window_labels)], window_labels, b"".join(map(_counted, window_labels))
    values = logits
    if name == PROBABILITIES:
        values = softmax(logits)
    return FLOAT, values.shape, values.ravel().tolist(), values.astype("<f4").tobytes()


def _counted(text: str) -> bytes:
    """Return a string of Triton's binary tensors: its length and its UTF-8.

    The length is four bytes, little-endian.
    """
    content = text.encode()
    return struct.pack("<I", len(content)) + content


log = logging.getLogger(__name__)

SERVER = "pscluster"
RETRY = {"retry-after": "1"}
EXTENSIONS = ("binary_tensor_data",)
PLATFORMS = {"onnx": "onnxruntime_onnx", "litert": "litert_tflite"}
_INLINE_BYTES = 65_536
"""A body up to this size is parsed in the event loop; a larger one would hold up the others."""


class Application:
    """The endpoints over one model."""

    def __init__(
        self,
        serving: Serving,
        token: str | None,
        budget: Budget,
        authority: Path | None = None,
    ) -> None:
        """`authority`: the certificate that the page offers to phones.

        `token`: what a client must send in its first message if it had no header Authorization.
        """
        self._authority = authority
        self._serving = serving
        self._limits = serving.limits
        self._token = token
        self._budget = budget
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="parser")
        """One thread: the objects of one large body at a time."""
        self._log = RateLimitedLog(log, logging.ERROR)
        self._importing: asyncio.Future[None] | None = None
        self._streams: LiveStreams | None = None
        self._phones: Phones | None = None

    async def end(self) -> None:
        """End live sessions, which can continue elsewhere."""
        if self._streams is not None:
            await self._streams.end()

    def close(self) -> None:
        """End the sessions of phones and the thread; other sessions end with their connections."""
        if self._phones is not None:
            self._phones.close()
        self._parser.shutdown()

    def starlette(self) -> Starlette:
        """Return the ASGI application."""
        model = "/v2/models/{model}"
        routes: list[BaseRoute] = [
            Route("/v2", self._server),
            Route("/v2/health/live", self._health),
            Route("/v2/health/ready", self._health),
            Route("/metrics", self._exposition),
            Route(SENSOR_LOGGER, self._sensor_logger, methods=["POST"]),
            WebSocketRoute(STREAM, self._stream),
            *files.routes(self._authority),
        ]
        for path in (model, model + "/versions/{version}"):
            routes += [
                Route(path, self._model),
                Route(f"{path}/ready", self._ready),
                Route(f"{path}/infer", self._infer, methods=["POST"]),
            ]
        application = Starlette(
            routes=routes,
            exception_handlers={
                RequestError: _refused,
                HTTPException: _http,
                Exception: self._broken,
            },
        )
        # a redirect would repeat the Host that a client made up
        application.router.redirect_slashes = False
        return application

    async def _server(self, _request: Request) -> Response:
        return JSONResponse(
            {"name": SERVER, "version": __version__, "extensions": list(EXTENSIONS)}
        )

    async def _health(self, request: Request) -> Response:
        """Answer a probe. The port opens once a version is warm, so who answers is ready."""
        return JSONResponse({request.url.path.rpartition("/")[2]: True})

    async def _model(self, request: Request) -> Response:
        description = self._named(request).description
        return JSONResponse(
            {
                "name": self._serving.name,
                "versions": [str(number) for number in self._serving.numbers],
                "platform": PLATFORMS.get(description.format, description.format),
                "inputs": [
                    {
                        "name": WINDOWS,
                        "datatype": FLOAT,
                        "shape": [-1, *description.input.shape],
                    }
                ],
                "outputs": outputs_of(description.output.classes),
                "parameters": {
                    "labels": list(labels_of(description)),
                    "channels": list(description.input.channels),
                    "unit": description.input.unit,
                    "units": list(description.input.units),
                    "sensors": dict(description.input.sensors),
                    "sampling_hz": description.sampling_hz,
                    "filters": description.filters,
                    "people": description.people,
                    "format_sha256": description.format_sha256,
                    "run": description.run.folder,
                    "sha256": description.sha256,
                },
            }
        )

    async def _ready(self, request: Request) -> Response:
        served = self._named(request)
        return JSONResponse(
            {"name": self._serving.name, "version": str(served.number), "ready": True}
        )

    async def _infer(self, request: Request) -> Response:
        served = self._named(request)
        header_bytes = _header_bytes(request)
        async with whole_body(request, self._budget, self._limits) as body:
            of = address_of(request.scope)
            content, headers = await self._answered(served, body, header_bytes, of)
        return Response(content, headers=headers)

    async def _answered(
        self, served: Served, body: bytearray, header_bytes: int | None, of: str
    ) -> tuple[bytes, dict[str, str]]:
        shape = served.description.input.shape
        if len(body) <= _INLINE_BYTES:
            inference = question(body, header_bytes, shape, self._limits)
        else:
            loop = asyncio.get_running_loop()
            inference = await loop.run_in_executor(
                self._parser, question, body, header_bytes, shape, self._limits
            )
        problem = windows_problem(inference.windows, signals_of(served.description))
        if problem is not None:
            raise bad(f"input {WINDOWS}: {problem} (the model takes g, rad/s and g)")
        seconds = min(
            self._limits.compute_seconds, inference.timeout_seconds or self._limits.compute_seconds
        )
        try:
            async with asyncio.timeout(seconds):
                logits = await served.batcher.logits(inference.windows, of)
        except TimeoutError:
            raise RequestError(
                504, f"no answer within {seconds:g} s: send fewer windows, or ask again later"
            ) from None
        labels = labels_of(served.description)
        return answer(inference, logits, labels, self._serving.name, served.number)

    async def _stream(self, websocket: WebSocket) -> None:
        """Take a WebSocket; its handshake ends first, because the import may take seconds.

        A client that has not named the token causes no import.
        """
        await websocket.accept()
        limits = self._limits.streams
        first = None
        if self._token is not None and "authorization" not in websocket.headers:
            try:
                with suppress(WebSocketDisconnect):
                    first = await first_with_token(websocket, limits, self._token)
            except RequestError as problem:
                self._serving.metrics.session_refused(close_code(problem))
                await refuse(websocket, problem, limits.room_seconds)
            if first is None:
                return
            prove(websocket.scope)
        await self._import_live()
        assert self._streams is not None
        await self._streams(websocket, first)

    async def _sensor_logger(self, request: Request) -> Response:
        await self._import_live()
        assert self._phones is not None
        return await self._phones(request)

    async def _import_live(self) -> None:
        """Import live sessions at the first one: SciPy's filters take 50 MB that others spare."""
        if self._importing is None:
            self._importing = asyncio.ensure_future(self._imported_live())
        await asyncio.shield(self._importing)

    async def _imported_live(self) -> None:
        streams, phones = await asyncio.to_thread(_live)
        self._streams = streams(self._serving)
        self._phones = phones(self._serving, self._budget)

    async def _exposition(self, request: Request) -> Response:
        content, kind = self._serving.metrics.exposition(request.headers.get("accept", ""))
        return Response(content, headers={"content-type": kind})

    def _named(self, request: Request) -> Served:
        model = request.path_params["model"]
        version = request.path_params.get("version")
        if model != self._serving.name:
            raise RequestError(404, f"expected the model {self._serving.name}, got {model!r:.60}")
        served = self._serving.version(version)
        if served is None:
            numbers = ", ".join(map(str, self._serving.numbers))
            raise RequestError(
                404, f"expected an open version of {model}, {numbers}, got {version!r:.60}"
            )
        return served

    async def _broken(self, _request: Request, problem: Exception) -> Response:
        self._log.say(f"a request failed: {type(problem).__name__}: {problem!s:.300}")
        return JSONResponse({"error": "the answer failed: the service's log says why"}, 500)


def _live() -> "tuple[type[LiveStreams], type[Phones]]":
    import scipy.signal  # noqa: F401  # of the filters, before the first window

    from recognise.service.live.endpoint import LiveStreams
    from recognise.service.live.recordings import Phones

    keep_what_there_is()
    return LiveStreams, Phones


def _header_bytes(request: Request) -> int | None:
    lengths = request.headers.getlist(HEADER_LENGTH)
    if not lengths:
        return None
    length = ", ".join(lengths)
    if not _LENGTH.fullmatch(length):
        raise bad(f"{HEADER_LENGTH}: expected one number, got {length!r:.60}")
    return int(length)


async def _refused(_request: Request, problem: Any) -> Response:
    return JSONResponse(
        {"error": problem.message}, problem.status, RETRY if problem.status == 503 else None
    )


async def _http(_request: Request, problem: Any) -> Response:
    messages = {
        404: (
            "expected /v2, /v2/health/live, /v2/health/ready,"
            " /v2/models/MODEL[/versions/VERSION][/ready|/infer], /metrics, /v1/sensor-logger or a"
            " WebSocket to /v1/stream"
        ),
        405: f"expected another method: {(problem.headers or {}).get('Allow', 'GET')}",
    }
    return JSONResponse(
        {"error": messages.get(problem.status_code, problem.detail)},
        problem.status_code,
        problem.headers,
    )
