"""A client without the token is told to close at once where it announces a long body."""

import asyncio

from starlette.types import Message, Receive, Scope, Send

from recognise.service.guard import UNPROVEN_DRAIN_BYTES, ServiceGuard
from recognise.service.metrics import ServiceMetrics


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("a request without the token came in")


def headers_of_refusal(announced: int) -> dict[bytes, bytes]:
    """The headers of the 401 for a body of so many bytes, of which none must be awaited."""
    guard = ServiceGuard(application, {"localhost"}, "s3cret-of-the-house", ServiceMetrics())
    headers = [(b"host", b"localhost"), (b"content-length", str(announced).encode())]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v2/models/har/infer",
        "query_string": b"",
        "headers": headers,
        "scheme": "http",
        "http_version": "1.1",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8470),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        assert announced <= UNPROVEN_DRAIN_BYTES, "it reads a long body"
        return {"type": "http.request", "body": b"x" * announced, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(guard(scope, receive, send))
    assert sent[0]["status"] == 401
    return dict(sent[0]["headers"])


def test_a_long_body_without_the_token_closes_the_connection_unread() -> None:
    assert headers_of_refusal(1 << 20)[b"connection"] == b"close"
    assert b"connection" not in headers_of_refusal(UNPROVEN_DRAIN_BYTES)
