"""Who may ask the page's server, for what, and the headers that go with every answer. Plain ASGI."""

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from starlette.responses import PlainTextResponse

from cluster.control.rules import is_ours

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

SAFE_METHODS = ("GET", "HEAD")
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Guarded:
    """Lets through what is a GET or HEAD for a host by a name that is ours."""

    def __init__(self, inner: Application, names: Collection[str]) -> None:
        """`names`: hosts that the page answers to besides `localhost` and any address."""
        self._inner, self._names = inner, {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                known = {name for name, _ in headers}
                headers += [(name, value) for name, value in HEADERS if name not in known]
                if b"cache-control" not in known:
                    headers.append((b"cache-control", b"no-cache" if b"etag" in known else b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        hosts = [value for name, value in scope["headers"] if name == b"host"]
        answer = self._inner
        if scope["method"] not in SAFE_METHODS:
            words = "this page can only be looked at: expected GET or HEAD\n"
            answer = PlainTextResponse(words, 405, {"Allow": ", ".join(SAFE_METHODS)})
        elif len(hosts) != 1 or not is_ours(hosts[0].decode("latin-1"), self._names):
            words = "this page answers to localhost, to its address and to its node's name only\n"
            answer = PlainTextResponse(words, 421)
        await answer(scope, receive, send_with_headers)
