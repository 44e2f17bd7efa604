"""A small HTTP server that no client can exhaust.

A connection carries one request, which has a deadline and a size.

One thread holds, reads and writes all connections; a few other threads compute answers, one request
each. A connection over the limit replaces the oldest one without a request.
"""

import logging
import math
import os
import secrets
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from core.control.door import Door, expired, listening, oldest_idle
from core.control.requests import (
    END_OF_HEAD,
    MOST_BODY_BYTES,
    MOST_HEAD_BYTES,
    BadRequestError,
    Reply,
    Request,
    parse,
)

log = logging.getLogger(__name__)

PROCESS_HEADER = "X-PSCluster-Process"
"""Names the process that answers: another value at the same port is another process. A pid alone
may repeat."""

MOST_CONNECTIONS = 128
REQUEST_SECONDS = 5.0
"""Time from the connection to the last byte of the request."""
ANSWER_SECONDS = 10.0
"""Time from the first byte of the answer to the last one."""
_CLOSE_SECONDS = 2.0


class Pool(Enum):
    """How many requests of a kind run at once; the others wait."""

    READ = 8
    ACT = 64


@dataclass(frozen=True)
class Computation:
    """An answer that takes time: a thread of its own computes it."""

    pool: Pool
    compute: Callable[[], Reply]


Route = Callable[[Request], Reply | Computation]
"""Decides what answers a request. Runs in the server's own thread, so it computes nothing."""


class _State(Enum):
    READING = "reading"
    ANSWERING = "answering"
    SENDING = "sending"


@dataclass(eq=False)
class _Connection:
    socket: socket.socket
    client: str
    since: float
    deadline: float
    state: _State = _State.READING
    received: bytearray = field(default_factory=bytearray)
    request: Request | None = None
    whole_bytes: int = 0
    """Length of head and body, known once the head is there."""
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    then: Callable[[], None] | None = None

    @property
    def idle(self) -> bool:
        return self.state is not _State.ANSWERING


class Server:
    """A running server; `port` is the one bound, also where 0 was asked for."""

    def __init__(
        self,
        host: str,
        port: int,
        route: Route,
        purpose: str,
        most: int = MOST_CONNECTIONS,
        turned: Callable[[], None] = lambda: None,
        computed: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Listen and start the thread.

        It calls `turned` after each turn; `computed` gets the CPU seconds of each answer.

        Raises OSError when the address cannot be bound.
        """
        self._door = Door(listening(host, port), purpose, most)
        self.port: int = self._door.listener.getsockname()[1]
        self._route = route
        self._turned = turned
        self._computed = computed
        self._process = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._connections: set[_Connection] = set()
        self._waiting: dict[Pool, deque[tuple[_Connection, Computation]]] = {
            pool: deque() for pool in Pool
        }
        self._working: dict[Pool, set[threading.Thread]] = {pool: set() for pool in Pool}
        self._done: deque[tuple[Pool, threading.Thread, _Connection, Reply]] = deque()
        self._wakes, self._wake = socket.socketpair()
        self._wakes.setblocking(False)
        self._wake.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._hears = False
        self._ends = False
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port.

        Waits for the server's thread, and briefly for answers under way.
        """
        self._ends = True
        self._alarm()
        self._thread.join()
        for worker in self._working[Pool.READ]:
            worker.join(_CLOSE_SECONDS)

    def _alarm(self) -> None:
        with suppress(OSError):  # full: the thread is awake; closed: it has ended
            self._wake.send(b"\0")

    def _run(self) -> None:
        try:
            while not self._ends:
                self._hear_or_not(time.monotonic())
                for key, _ in self._selector.select(self._patience(time.monotonic())):
                    self._ready(key)
                self._finish()
                for connection in expired(self._connections, time.monotonic()):
                    self._close(connection)
                self._turned()
        finally:
            for connection in tuple(self._connections):
                self._close(connection)
            self._door.listener.close()
            self._selector.close()
            self._wakes.close()
            self._wake.close()

    def _ready(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._wakes:
            with suppress(BlockingIOError):
                while self._wakes.recv(4096):
                    pass
        elif key.fileobj is self._door.listener:
            self._accept()
        elif key.data in self._connections:  # an earlier event of this turn may have closed it
            try:
                (self._read if key.data.state is _State.READING else self._send)(key.data)
            except OSError:  # the client disconnected
                self._close(key.data)
            except Exception:  # a failure of one connection must not end the server
                log.warning("the answer to %s failed", key.data.client, exc_info=True)
                self._close(key.data)

    def _hear_or_not(self, now: float) -> None:
        hears = now >= self._door.closed_until
        if hears and not self._hears:
            self._selector.register(self._door.listener, selectors.EVENT_READ)
        elif self._hears and not hears:
            self._selector.unregister(self._door.listener)
        self._hears = hears

    def _patience(self, now: float) -> float | None:
        ends = [connection.deadline for connection in self._connections if connection.idle]
        if not self._hears:
            ends.append(self._door.closed_until)
        if ends:
            return max(0.0, min(ends) - now)
        return None

    def _accept(self) -> None:
        for connected, client in self._door.newcomers(self._connections, self._evict):
            now = time.monotonic()
            connection = _Connection(connected, client, now, now + REQUEST_SECONDS)
            self._connections.add(connection)
            key = self._selector.register(connected, selectors.EVENT_READ, connection)
            self._ready(key)  # the request is often there already

    def _evict(self) -> bool:
        """Close the oldest connection without an answer under way; return whether there was one."""
        oldest = oldest_idle(self._connections)
        if oldest is None:
            return False
        self._close(oldest)
        return True

    def _read(self, connection: _Connection) -> None:
        try:
            received = connection.socket.recv(MOST_HEAD_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        if not received:
            self._close(connection)
            return
        searched = max(0, len(connection.received) - len(END_OF_HEAD) + 1)
        connection.received += received
        if connection.request is None and not self._head(connection, searched):
            return
        if len(connection.received) >= connection.whole_bytes:
            self._begin(connection)

    def _head(self, connection: _Connection, searched: int) -> bool:
        """Whether the head is there and announces a valid body.

        Looks for its end from `searched` on.
        """
        end = connection.received.find(END_OF_HEAD, searched, MOST_HEAD_BYTES)
        if end < 0:
            if len(connection.received) >= MOST_HEAD_BYTES:
                self._answer(
                    connection,
                    Reply.words(431, f"expected at most {MOST_HEAD_BYTES} bytes before the body"),
                )
            return False
        head = bytes(connection.received[: end + len(END_OF_HEAD)])
        try:
            request = parse(head, connection.client, connection.socket.getsockname()[0])
            length = request.body_bytes
            if length is None:
                raise BadRequestError(411, "expected the body's length as one Content-Length")
            if length > MOST_BODY_BYTES:
                raise BadRequestError(413, f"expected a body of at most {MOST_BODY_BYTES} bytes")
        except BadRequestError as problem:
            self._answer(connection, problem.reply)
            return False
        connection.request = request
        connection.whole_bytes = len(head) + length
        return True

    def _begin(self, connection: _Connection) -> None:
        assert connection.request is not None  # called once the request is there
        connection.received.clear()
        try:
            answer = self._route(connection.request)
        except Exception:
            log.warning("the answer to %s failed", connection.client, exc_info=True)
            answer = Reply.words(500, "the answer failed: the log of this process says why")
        if isinstance(answer, Reply):
            self._answer(connection, answer)
            return
        self._selector.unregister(connection.socket)
        connection.state = _State.ANSWERING
        connection.deadline = math.inf
        self._waiting[answer.pool].append((connection, answer))
        self._next(answer.pool)

    def _next(self, pool: Pool) -> None:
        while self._waiting[pool] and len(self._working[pool]) < pool.value:
            connection, work = self._waiting[pool].popleft()
            worker = threading.Thread(
                target=self._compute, args=(connection, work), name="answer", daemon=True
            )
            self._working[pool].add(worker)
            try:
                worker.start()
            except RuntimeError:  # the system refuses another thread
                self._working[pool].discard(worker)
                self._answer(connection, Reply.words(503, "no thread is left to answer: ask again"))

    def _compute(self, connection: _Connection, work: Computation) -> None:
        try:
            reply = work.compute()
        except Exception:
            log.warning("the answer to %s failed", connection.client, exc_info=True)
            reply = Reply.words(500, "the answer failed: the log of this process says why")
        self._computed(time.thread_time())  # this thread computed nothing else
        self._done.append((work.pool, threading.current_thread(), connection, reply))
        self._alarm()

    def _finish(self) -> None:
        while self._done:
            pool, worker, connection, reply = self._done.popleft()
            self._working[pool].discard(worker)
            self._answer(connection, reply)
            self._next(pool)

    def _answer(self, connection: _Connection, reply: Reply) -> None:
        if connection.state is _State.READING:
            self._selector.unregister(connection.socket)
        connection.state = _State.SENDING
        connection.then = reply.then
        connection.unsent = memoryview(reply.encoded((PROCESS_HEADER, self._process)))
        connection.deadline = time.monotonic() + ANSWER_SECONDS
        self._selector.register(connection.socket, selectors.EVENT_WRITE, connection)
        try:
            self._send(connection)
        except OSError:
            self._close(connection)

    def _send(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.unsent)
        except (BlockingIOError, InterruptedError):
            return
        connection.unsent = connection.unsent[sent:]
        if connection.unsent:
            return
        self._close(connection)
        if connection.then is not None:
            try:
                connection.then()
            except Exception:
                log.warning(
                    "what follows the answer to %s failed", connection.client, exc_info=True
                )

    def _close(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        if connection.idle:
            with suppress(KeyError, ValueError):
                self._selector.unregister(connection.socket)
        connection.socket.close()
