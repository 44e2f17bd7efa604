"""The body of a request, read within bounds of bytes and seconds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from recognise.service.limits import MEBIBYTE, Limits, RequestError


class Budget:
    """Bytes of all bodies that are held at one time, within one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0

    def take(self, size: int) -> None:
        """Take this many bytes. Raises RequestError when there is no room."""
        if self.held + size > self._most:
            raise RequestError(
                503,
                f"requests of {self._most // MEBIBYTE} MiB are under way already: ask again later",
            )
        self.held += size

    def give(self, size: int) -> None:
        """Give these bytes back."""
        self.held -= size


@asynccontextmanager
async def whole_body(request: Request, budget: Budget, limits: Limits) -> AsyncIterator[bytearray]:
    """Yield the body. Its bytes count in the budget until the block ends. Raises RequestError."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RequestError(415, "expected a body that is not compressed")
    announced = int(request.headers.get("content-length", 0))  # h11 has refused what is no number
    if announced > limits.body_bytes:
        raise _too_long(limits)
    budget.take(announced)
    reserved_bytes = announced
    try:
        # one block that the system gets back, where a list of chunks would be left in pieces
        body = bytearray()
        try:
            async with asyncio.timeout(limits.body_seconds):
                async for chunk in request.stream():
                    size = len(body) + len(chunk)
                    if size > limits.body_bytes:
                        raise _too_long(limits)
                    if size > reserved_bytes:  # sent in chunks, without a length
                        budget.take(size - reserved_bytes)
                        reserved_bytes = size
                    body += chunk
        except TimeoutError:
            raise RequestError(
                408,
                f"expected the whole body within {limits.body_seconds:g} s, got {len(body)} bytes",
            ) from None
        except ClientDisconnect:
            raise RequestError(400, "the connection ended within the body") from None
        yield body
    finally:
        budget.give(reserved_bytes)


def _too_long(limits: Limits) -> RequestError:
    return RequestError(413, f"expected a body of at most {limits.body_bytes} bytes")
