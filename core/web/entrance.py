"""What stands before a page: the guard of its requests, and of its connections at a `Listener`.

The guard checks Host and the method, and completes the headers.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.control.door import Listener, Visitor
from core.control.requests import OWN_PAGE, is_ours

UNPROVEN_SECONDS = 10.0
"""Time of a connection until its client has proven itself; and since its last request."""
LOOK_SECONDS = 0.5
VISITOR = "pscluster.visitor"
"""Key of a request's connection in its scope (ASGI)."""


async def end_late(listener: Listener) -> None:
    """End unproven connections whose time is over, until this is cancelled."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        listener.end_late(UNPROVEN_SECONDS)


def prove(scope: MutableMapping[str, Any]) -> None:
    """Count the connection of this request (ASGI) among those that may stay."""
    visitor: Visitor | None = scope.get(VISITOR)
    if visitor is not None:
        visitor.prove()


SAFE_METHODS = ("GET", "HEAD")
HEADERS = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every answer; each guard adds the policy for its own content."""


def taking(scope: Scope, receive: Receive) -> Receive:
    """Return `receive` (ASGI), which notes that what came on the connection was taken."""
    visitor: Visitor | None = scope.get(VISITOR)

    async def take() -> Message:
        message = await receive()
        if visitor is not None:
            visitor.take(sum(len(message.get(key) or "") for key in ("body", "text", "bytes")))
        return message

    return take


class RequestGuard(ABC):
    """A guard that answers what `refusal` refuses, passes on the rest, and adds missing headers."""

    headers: Mapping[str, str] = HEADERS

    def __init__(
        self, application: ASGIApp, names: Collection[str], listener: Listener | None = None
    ) -> None:
        """`names`: hosts that the server answers to besides `localhost` and any address.

        Its connections come from the `listener`.
        """
        self.application = application
        self._names = {"localhost", *(name.lower() for name in names)}
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request (ASGI)."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._complete(MutableHeaders(scope=message))
            await send(message)

        with self.request(scope):
            await (self.refusal(scope) or self.application)(scope, receive, send_with_headers)

    def request(self, scope: Scope) -> AbstractContextManager[None]:
        """Have the connection of a request know that it is answered, and the request of it."""
        visitor = None
        if self._listener is not None:
            visitor = self._listener.visitor(scope["client"], scope["server"])
        if visitor is None:  # it is no connection, or has given way
            return nullcontext()
        scope[VISITOR] = visitor
        return visitor.request()

    @abstractmethod
    def refusal(self, scope: Scope) -> ASGIApp | None:
        """Return the answer to a request that is refused, or None."""

    def is_for_us(self, scope: Scope) -> bool:
        """Return whether the request has one header Host, with an address or a name of ours."""
        hosts = Headers(scope=scope).getlist("host")
        return len(hosts) == 1 and is_ours(hosts[0], self._names)

    def _complete(self, headers: MutableHeaders) -> None:
        for name, value in self.headers.items():
            headers.setdefault(name, value)
        headers.setdefault("cache-control", "no-cache" if "etag" in headers else "no-store")


class PageGuard(RequestGuard):
    """The guard of a page that can only be looked at."""

    headers = HEADERS | {
        "content-security-policy": (
            "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            "object-src 'none'"
        ),
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
    }

    def refusal(self, scope: Scope) -> ASGIApp | None:
        """Refuse other methods than GET and HEAD, other hosts, and what another site's page loads.

        A person may follow a link from there. None lets it through.
        """
        if scope["method"] not in SAFE_METHODS:
            refusal = "this page can only be looked at: expected GET or HEAD\n"
            return PlainTextResponse(refusal, 405, {"Allow": ", ".join(SAFE_METHODS)})
        if not self.is_for_us(scope):
            refusal = "this page answers to localhost, to its address and to its node's name only\n"
            return PlainTextResponse(refusal, 421)
        headers = Headers(scope=scope)
        if (
            headers.get("sec-fetch-site") not in OWN_PAGE
            and headers.get("sec-fetch-mode") != "navigate"
        ):
            # It could read nothing, but hold a place of those who look.
            refusal = "this is not for the pages of other sites: open it in a tab of its own\n"
            return PlainTextResponse(refusal, 403)
        prove(scope)
        return None
