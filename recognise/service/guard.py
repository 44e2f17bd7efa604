"""Who may ask, and how each answer ends: the token, the name in Host, no other site's pages, one count an answer."""

import asyncio
import hmac
import time
from collections.abc import Collection
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cluster.control.rules import is_ours
from recognise.service.metrics import ServiceMetrics
from recognise.service.page.files import is_page

OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")
"""Probes need no token: they say no more than that the service runs."""
HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
}
_OWN_PAGE = (None, "none", "same-origin")
DRAIN_SECONDS = 2.0
DRAIN_BYTES = 64 << 20
INFER = "/infer"
STREAM, SENSOR_LOGGER = "/v1/stream", "/v1/sensor-logger"
_SAFE = ("GET", "HEAD")
SWITCHING = 101
MOST_QUERY = 1024
"""Bytes of a query that may have the token."""


class Guarded:
    """Lets a request through that has the token and names this machine; counts every answer."""

    def __init__(self, inner: ASGIApp, names: Collection[str], token: str | None, metrics: ServiceMetrics) -> None:
        """`names`: hosts that the service answers to besides `localhost` and any address. None: no token is asked."""
        self._inner, self._names, self._token = inner, {"localhost", *(name.lower() for name in names)}, token
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "websocket":
            await self._handshake(scope, receive, send)
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        body = _Body(receive)
        code = 500

        async def sending(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if code >= HTTPStatus.BAD_REQUEST:
                    await body.drain(Headers(scope=scope))
            await send(message)

        try:
            await (self._refusal(scope) or self._inner)(scope, body, sending)
        finally:
            is_inference = scope["method"] == "POST" and scope["path"].endswith(INFER)
            self._metrics.answered(code, time.perf_counter() - began if is_inference else None)

    async def _handshake(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket. It is counted when it begins: its session is no answer."""

        async def sending(message: Message) -> None:
            if message["type"] == "websocket.accept":
                self._metrics.answered(SWITCHING, None)
            elif message["type"] == "websocket.http.response.start":
                self._metrics.answered(message["status"], None)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None and scope["path"] != STREAM:
            refusal = _error(404, f"expected {STREAM} for a WebSocket")
        await (refusal or self._inner)(scope, receive, sending)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        is_stream = scope["type"] == "websocket"
        if len(hosts) != 1 or not is_ours(hosts[0], self._names):
            return _error(421, "expected localhost, an address or this machine's name as Host")
        if is_page(scope["path"]) and not is_stream and scope["method"] in _SAFE:
            return None  # it holds no secret, its policy lets no other site frame it, and a person may follow a link
        origins = headers.getlist("origin")
        if origins and not (is_stream and origins in _own_origins(hosts[0])):
            return _error(403, "this is not for the pages of other sites: expected no Origin")
        if headers.get("sec-fetch-site") not in _OWN_PAGE:
            return _error(403, "this is not for the pages of other sites: expected Sec-Fetch-Site of this one")
        if self._token is None or scope["path"] in OPEN_PATHS:
            return None
        if is_stream and "authorization" not in headers:
            return None  # a browser cannot send it: the first message has the token
        if scope["path"] == SENSOR_LOGGER and "authorization" not in headers:
            return self._by_query(scope["query_string"])
        given = headers.getlist("authorization")
        kind, _, word = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if kind.lower() != "bearer" or not hmac.compare_digest(word.strip().encode(), self._token.encode()):
            words = "expected the header Authorization: Bearer TOKEN with the token that `fab serve` names"
            return _error(401, words, {"www-authenticate": "Bearer"})
        return None

    def _by_query(self, query: bytes) -> ASGIApp | None:
        """The app of a phone may have no field for a header: its address then has the token."""
        given = parse_qs(query[:MOST_QUERY].decode("latin-1")).get("token", [])
        if self._token is None or (len(given) == 1 and hmac.compare_digest(given[0].encode(), self._token.encode())):
            return None
        return _error(401, "expected the header Authorization: Bearer TOKEN, or ?token=TOKEN behind the address")


class _Body:
    """Receives for the application, and reads the rest of a refused body.

    A connection that closes with unread bytes resets, and the client never reads why.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._more = True
        self._begun = False

    async def __call__(self) -> Message:
        """See ASGI."""
        self._begun = True
        message = await self._receive()
        self._more = message["type"] == "http.request" and message.get("more_body", False)
        return message

    async def drain(self, headers: Headers) -> None:
        """Read what is left, within bounds. A client that waits for 100 Continue has sent nothing yet."""
        if "expect" in headers and not self._begun:
            return
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._more and size <= DRAIN_BYTES:
                    size += len((await self()).get("body", b""))


def _own_origins(host: str) -> list[list[str]]:
    """What the header Origin may be for a page that came from `host`, each as the list of its values."""
    return [[f"{scheme}://{host}"] for scheme in ("http", "https")]


def _error(status: int, words: str, headers: dict[str, str] | None = None) -> ASGIApp:
    return JSONResponse({"error": words}, status, headers)
