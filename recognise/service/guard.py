"""The guard of the service: it checks Host, origin and token, and counts every answer.

A browser names the token in the first message of its WebSocket. The words and codes with which a
session ends are here too.
"""

import asyncio
import hmac
import time
from collections.abc import Collection
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pydantic_core
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from core.control.door import Listener
from core.control.requests import OWN_PAGE
from core.web.entrance import HEADERS, SAFE_METHODS, RequestGuard, prove, taking
from recognise.service.limits import RequestError, StreamLimits, bad
from recognise.service.metrics import ServiceMetrics
from recognise.service.page.files import is_page

OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")
"""Probes need no token: they say no more than that the service runs."""
DRAIN_SECONDS = 2.0
DRAIN_BYTES = 64 << 20
UNPROVEN_DRAIN_BYTES = 64 << 10
"""A client without the token that announces more is cut off with its answer."""
INFER = "/infer"
STREAM = "/v1/stream"
SENSOR_LOGGER = "/v1/sensor-logger"
PAGE = "x-page-origin"
"""The header in which our page says its own origin: a request of the same origin has no header
Origin."""
NO_UPGRADE = (
    f"expected a WebSocket to {STREAM}, got a request without Upgrade. Behind a proxy: have it pass"
    " Upgrade and Connection on, as docs/service.md shows"
)
NO_TOKEN = "expected the header Authorization: Bearer TOKEN with the token that `fab serve` names"
NO_TOKEN_IN_ADDRESS = (
    "expected the header Authorization: Bearer TOKEN, or ?token=TOKEN behind the address"
)
_PORTS = {"http": 80, "https": 443}
_LONGEST_SHOWN = 80
SWITCHING = 101
MOST_QUERY = 1024
"""Bytes of a query that may have the token."""


class ServiceGuard(RequestGuard):
    """A guard that also asks for the token, keeps out other sites' pages, and counts answers."""

    headers = HEADERS | {"content-security-policy": "default-src 'none'; frame-ancestors 'none'"}

    def __init__(
        self,
        application: ASGIApp,
        names: Collection[str],
        token: str | None,
        metrics: ServiceMetrics,
        operator_names: Collection[str] = (),
        listener: Listener | None = None,
    ) -> None:
        """`names`: hosts that the service answers to besides `localhost` and any address.

        Without a token (None) none is asked. The operator gave `operator_names`. A page of one of
        them is ours whatever Host says, which a proxy may have changed.
        """
        super().__init__(application, names, listener)
        self._token = token
        self._operator_names = {name.lower() for name in operator_names}
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request or take one WebSocket (ASGI)."""
        if scope["type"] == "websocket":
            with self.request(scope):
                await self._handshake(scope, taking(scope, receive), send)
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        body = _Body(receive, scope)
        code = 500

        async def send_after_body(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                if code >= HTTPStatus.BAD_REQUEST:
                    most = DRAIN_BYTES
                    if code == HTTPStatus.UNAUTHORIZED:
                        most = UNPROVEN_DRAIN_BYTES
                    if not await body.drain(Headers(scope=scope), most):
                        MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        try:
            await super().__call__(scope, body, send_after_body)
        finally:
            is_inference = scope["method"] == "POST" and scope["path"].endswith(INFER)
            self._metrics.answered(code, time.perf_counter() - began if is_inference else None)

    async def _handshake(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a WebSocket, and count it when it begins: its session is no answer."""

        async def send_counted(message: Message) -> None:
            if message["type"] == "websocket.accept":
                self._metrics.answered(SWITCHING, None)
            elif message["type"] == "websocket.http.response.start":
                self._metrics.answered(message["status"], None)
            await send(message)

        refusal = self.refusal(scope)
        if refusal is None and scope["path"] != STREAM:
            refusal = _error(404, f"expected {STREAM} for a WebSocket")
        await (refusal or self.application)(scope, receive, send_counted)

    def refusal(self, scope: Scope) -> ASGIApp | None:
        """Refuse other hosts, the pages of other sites, and requests without the token."""
        headers = Headers(scope=scope)
        is_stream = scope["type"] == "websocket"
        if not self.is_for_us(scope):
            return _error(421, _unknown_host(headers.getlist("host")))
        if is_page(scope["path"]) and not is_stream and scope["method"] in SAFE_METHODS:
            # it holds no secret, its policy lets no other site frame it, and a person may follow a
            # link
            return None
        host = headers["host"]
        origins = headers.getlist("origin")
        is_socket = is_stream or scope["path"] == STREAM
        if origins and not (is_socket and len(origins) == 1 and self._is_own(origins[0], host)):
            return _error(403, _foreign(origins, host, is_socket))
        if headers.get("sec-fetch-site") not in OWN_PAGE:
            return _error(
                403, "this is not for the pages of other sites: expected Sec-Fetch-Site of this one"
            )
        if is_socket and not is_stream:
            return self._no_socket(headers.get(PAGE), host)
        return self._token_refusal(scope, headers)

    def _token_refusal(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        if self._token is None:
            prove(scope)
            return None
        if scope["path"] in OPEN_PATHS:
            return None
        if "authorization" not in headers:
            if scope["type"] == "websocket":
                return None  # a browser cannot send it: the first message has the token
            if scope["path"] == SENSOR_LOGGER:
                # The app of a phone may have no field for a header: its address then has the token.
                query = parse_qs(scope["query_string"][:MOST_QUERY].decode("latin-1"))
                if _is_one(query.get("token", []), self._token):
                    prove(scope)
                    return None
                return _error(401, NO_TOKEN_IN_ADDRESS)
        bearers = []
        for credential in headers.getlist("authorization"):
            kind, _, word = credential.partition(" ")
            bearers.append(word.strip() if kind.lower() == "bearer" else "")
        if _is_one(bearers, self._token):
            prove(scope)
            return None
        return _error(401, NO_TOKEN, {"www-authenticate": "Bearer"})

    def _no_socket(self, page: str | None, host: str) -> ASGIApp:
        """Refuse a request without Upgrade where sockets are.

        Our page sends one, with its origin, to learn why it got no WebSocket.
        """
        if page is not None and not self._is_own(page, host):
            return _error(403, _foreign([page], host, True))
        return _error(426, NO_UPGRADE, {"upgrade": "websocket"})

    def _is_own(self, origin: str, host: str) -> bool:
        """Return whether a page of this origin came from this service, perhaps through a proxy.

        The request was for `host`.
        """
        try:
            page = urlsplit(origin)
            destination = urlsplit(f"//{host}")
            port = page.port or _PORTS.get(page.scheme)
            if (
                page.scheme not in _PORTS
                or not page.hostname
                or origin != f"{page.scheme}://{page.netloc}"
            ):
                return False
            # A Host without a port is that of a proxy: a browser leaves out only the usual one.
            same_place = destination.hostname == page.hostname and destination.port in (None, port)
        except ValueError:
            return False
        return same_place or page.hostname.rstrip(".") in self._operator_names


def _is_one(tokens: list[str], token: str) -> bool:
    """Return whether exactly this token was given, compared in constant time."""
    return len(tokens) == 1 and hmac.compare_digest(tokens[0].encode(), token.encode())


class _Body:
    """The receiver of the application, which can read the rest of a refused body.

    A connection that closes with unread bytes resets, and the client never reads why.
    """

    def __init__(self, receive: Receive, scope: Scope) -> None:
        self._receive = receive
        self._scope = scope
        self._more = True
        self._begun = False

    async def __call__(self) -> Message:
        """Receive the next part of the body (ASGI)."""
        self._begun = True
        message = await taking(self._scope, self._receive)()
        self._more = message["type"] == "http.request" and message.get("more_body", False)
        return message

    async def drain(self, headers: Headers, most: int) -> bool:
        """Read what is left, `most` bytes of it, unless more is announced; return whether it ended.

        A client that waits for 100 Continue has sent nothing yet.
        """
        if "expect" in headers and not self._begun:
            return True
        if int(headers.get("content-length", 0)) > most:  # h11 has refused what is no number
            return False
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._more and size <= most:
                    size += len((await self()).get("body", b""))
        return not self._more


def _unknown_host(hosts: list[str]) -> str:
    if len(hosts) != 1:
        return f"expected one header Host, got {len(hosts)}"
    name = hosts[0][:_LONGEST_SHOWN]
    return (
        f"expected localhost, an address or this machine's name as Host, got {name!r}: start the"
        " service with --host-name NAME (on nodes: service.names) for another name"
    )


def _foreign(origins: list[str], host: str, is_socket: bool) -> str:
    """Return why a page may not ask, and what its operator does if it is ours."""
    origin = ", ".join(origins)[:_LONGEST_SHOWN]
    reason = f"this is not for the pages of other sites: got a page of {origin!r}"
    if not is_socket:
        return f"{reason}; ask from a program, without Origin"
    return (
        f"{reason}, asked as {host[:_LONGEST_SHOWN]!r}. Behind a proxy: have it pass Host on as the"
        " browser wrote it, or start the service with --host-name and the page's name"
    )


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> ASGIApp:
    return JSONResponse({"error": message}, status, headers)


POLICY = 1008
TOO_LARGE = 1009
BROKEN = 1011
RESTART = 1012
BUSY = 1013
"""Close codes: RFC 6455, and its registry for 1012 and 1013."""


def close_code(problem: RequestError) -> int:
    """Return the close code for a refusal: that of its status, or 1008."""
    return {413: TOO_LARGE, 500: BROKEN, 503: BUSY}.get(problem.status, POLICY)


def refusal(reason: str) -> str:
    """Return the event that says why a session ends."""
    return pydantic_core.to_json({"event": "refused", "error": reason}).decode()


async def text_of(websocket: WebSocket) -> str:
    """Return the next message. Raises RequestError, and WebSocketDisconnect at the end."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    text: str | None = message.get("text")
    if text is None:
        raise bad("expected text, got a binary message")
    return text


async def first_message(websocket: WebSocket, limits: StreamLimits) -> str:
    """Return the first message. Raises RequestError, and WebSocketDisconnect at its end."""
    seconds = limits.hello_seconds
    try:
        async with asyncio.timeout(seconds):
            return await text_of(websocket)
    except TimeoutError:
        raise bad(f"expected the first message within {seconds:g} s") from None


async def first_with_token(websocket: WebSocket, limits: StreamLimits, token: str) -> str:
    """Return the first message of a client that sent no header, if it names the token.

    Raises as `first_message` does. Nothing else of it is looked at.
    """
    text = await first_message(websocket, limits)
    try:
        document: Any = pydantic_core.from_json(text)
    except ValueError as problem:
        raise bad(
            f'expected {{"schema": 1, "token": ...}} as the first message: {problem!s:.100}'
        ) from None
    client_token = None
    if isinstance(document, dict):
        client_token = document.get("token")
    if not isinstance(client_token, str) or not hmac.compare_digest(
        client_token.encode(), token.encode()
    ):
        raise bad("expected token in the first message: the token that `fab serve` names")
    return text


async def refuse(websocket: WebSocket, problem: RequestError, seconds: float) -> None:
    """Say why a session ends, and close it. A client may read nothing for so long."""
    with suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
        async with asyncio.timeout(seconds):
            await websocket.send_text(refusal(problem.message))
            await websocket.close(close_code(problem))


async def send(websocket: WebSocket, event: object) -> None:
    """Send an event. Raises WebSocketDisconnect, also where the server failed the connection."""
    try:
        await websocket.send_text(pydantic_core.to_json(event).decode())
    except RuntimeError:
        raise WebSocketDisconnect(BROKEN) from None
