"""Limits of the service: errors that name one, bodies, places of sessions, memory given back."""

import asyncio
import ctypes
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.control.door import network_of

if TYPE_CHECKING:
    from starlette.requests import Request


MEBIBYTE = 1 << 20


class RequestError(Exception):
    """A request that is refused with an HTTP status; the client reads `message`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def bad(message: str) -> RequestError:
    """Return the error for a request that is wrong (400)."""
    return RequestError(400, message)


@dataclass(frozen=True)
class StreamLimits:
    """What live sessions take."""

    sessions: int = 128
    """Sessions that are open at one time, of each kind."""
    message_bytes: int = MEBIBYTE
    """One message of a session."""
    hello_seconds: float = 5.0
    """Time from the connection to the first message."""
    idle_seconds: float = 60.0
    """Time from one message to the next."""
    readings_per_second: float = 500.0
    burst_readings: int = 16_384
    """Four of the largest messages: what a phone collected while its network was away."""
    seconds_per_second: float = 1.25
    burst_seconds: int = 330
    """Time of the readings by their own clock, of which windows are made: the same burst at 50 Hz.
    """
    computing: int = 8
    """Windows of one session that are computed at one time, so that others come in between."""
    messages_per_second: float = 250.0
    burst_messages: int = 1000
    least_hop: int = 5
    """Samples between two windows: at most ten labels a second."""
    waiting: int = 64
    """Windows and faults of one session that wait for their answer."""
    room_seconds: float = 5.0
    """Time that one more may wait for room."""
    leave_seconds: float = 2.0
    """Time to compute windows when the service ends; the others go into the session's state."""


@dataclass(frozen=True)
class Limits:
    """What one service takes. The defaults fit a Raspberry Pi with 1 GB."""

    head_bytes: int = 16_384
    """Request line and headers."""
    body_bytes: int = 16 * MEBIBYTE
    """One request's body."""
    held_bytes: int = 32 * MEBIBYTE
    """All bodies that are read or wait for an answer at one time."""
    header_bytes: int = 65_536
    """The JSON part of a request with binary tensors."""
    windows: int = 512
    """Windows of one request."""
    waiting_windows: int = 4096
    """Windows of all requests that wait for a thread."""
    batch_windows: int = 64
    """Windows that are computed together, so that a runtime keeps memory for no more of them."""
    batch_seconds: float = 0.002
    """Time that a request waits for others to be computed with."""
    threads: int = 2
    """Batches that are computed at one time, each with one thread of the runtime."""
    body_seconds: float = 10.0
    """Time from the head of a request to the end of its body."""
    compute_seconds: float = 10.0
    """Time from the body to the answer."""
    memory_megabytes: int = 384
    """Memory that the service may take; `service.memory_megabytes` of an inventory."""
    open_seconds: float = 60.0
    """Time for a model's process to open it; a Raspberry Pi 3 takes a third."""
    watch_seconds: float = 60.0
    """Time after a promotion in which a version whose process ends twice is taken back."""
    connections: int = 128
    """Open connections; the oldest one without a request makes room for the next."""
    streams: StreamLimits = field(default_factory=StreamLimits)
    """Live sessions, whose connections are not among those above."""

    @property
    def model_bytes(self) -> int:
        """Memory that the process of one model may take: the service needs the other third."""
        return self.memory_megabytes * MEBIBYTE * 2 // 3


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
async def whole_body(
    request: "Request", budget: Budget, limits: Limits
) -> AsyncIterator[bytearray]:
    """Yield the body. Its bytes count in the budget until the block ends. Raises RequestError."""
    from starlette.requests import ClientDisconnect  # a model's process does without

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


_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
"""Parameters of mallopt(3)."""
LARGE_BYTES = 1 << 18
ARENAS = 2


def keep_what_there_is() -> None:
    """Exempt every present object from garbage collection.

    Python collects everything only once the new objects are a quarter of the old ones, and modules
    alone are so many that the remains of tens of thousands of connections would wait for it.
    """
    gc.collect()
    gc.freeze()


def give_back_large_blocks() -> None:
    """Have glibc map each block of 256 KiB and more by itself, and keep two arenas.

    By default it raises that threshold to the largest block it has seen, 32 MiB at most, and each
    thread then keeps such blocks in an arena of its own. Another C library has no mallopt, and
    needs none.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_ARENA_MAX, ARENAS)


class SessionPlaces:
    """Places of sessions with the token.

    While all are held, an address with fewer gets the newest of the one with the most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[object, tuple[str, Callable[[], None]]] = {}

    def enter(self, session: object, address: str, end: Callable[[], None]) -> None:
        """Give a session a place until it leaves; `end` is called where it must give way.

        Raises RequestError.
        """
        if len(self._held) >= self._most:
            counts = Counter(of for of, _ in self._held.values())
            busiest, most = counts.most_common(1)[0]
            if counts[address] + 1 >= most:
                raise RequestError(503, f"{self._most} sessions are open already: come again later")
            newest = next(
                candidate
                for candidate in reversed(self._held)
                if self._held[candidate][0] == busiest
            )
            self._held.pop(newest)[1]()
        self._held[session] = (address, end)

    def leave(self, session: object) -> None:
        """Free its place, unless it gave way."""
        self._held.pop(session, None)


def given_way() -> RequestError:
    """Return what a session hears that gave way."""
    return RequestError(
        503, "another address has fewer sessions and got this one's place: come again later"
    )


def address_of(scope: MutableMapping[str, Any]) -> str:
    """Return whose share a request or session is of: its client's address or, of IPv6, network."""
    client = scope.get("client")
    if client:
        return network_of(client[0])
    return ""
