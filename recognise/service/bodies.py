"""The body of a request, read within bounds: bytes of one, bytes of all at once, seconds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from recognise.service.limits import MEBIBYTE, Limits
from recognise.service.refusals import RefusedError, bad


class Budget:
    """Bytes of all bodies that are held at one time, within one event loop."""

    def __init__(self, most: int) -> None:
        self._most, self.held = most, 0

    def take(self, size: int) -> None:
        """Raises RefusedError when there is no room."""
        if self.held + size > self._most:
            raise RefusedError(503, f"requests of {self._most // MEBIBYTE} MiB are under way already: ask again later")
        self.held += size

    def give(self, size: int) -> None:
        """These bytes are free again."""
        self.held -= size


@asynccontextmanager
async def whole_body(request: Request, budget: Budget, limits: Limits) -> AsyncIterator[bytes]:
    """The body. Its bytes count in the budget until the block ends. Raises RefusedError."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RefusedError(415, "expected a body that is not compressed")
    announced = _length(request.headers.getlist("content-length"))
    if announced > limits.body_bytes:
        raise _too_long(limits)
    budget.take(announced)
    taken = announced
    try:
        chunks, size = [], 0
        try:
            async with asyncio.timeout(limits.body_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > limits.body_bytes:
                        raise _too_long(limits)
                    if size > taken:  # sent in chunks, without a length
                        budget.take(size - taken)
                        taken = size
                    chunks.append(chunk)
        except TimeoutError:
            raise RefusedError(
                408, f"expected the whole body within {limits.body_seconds:g} s, got {size} bytes"
            ) from None
        except ClientDisconnect:
            raise RefusedError(400, "the connection ended within the body") from None
        yield b"".join(chunks)
    finally:
        budget.give(taken)


def _too_long(limits: Limits) -> RefusedError:
    return RefusedError(413, f"expected a body of at most {limits.body_bytes} bytes")


def _length(given: list[str]) -> int:
    """Of Content-Length; 0 without one. h11 refuses what is no number before this."""
    try:
        return int(given[0]) if given else 0
    except ValueError:
        raise bad(f"Content-Length: expected a number, got {given[0]!r:.60}") from None
