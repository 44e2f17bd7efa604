"""A small HTTP server that no client can exhaust: one request a connection, each with a deadline and a size.

One thread holds, reads and writes all connections; a few other threads compute answers, one request each. A connection
over the limit replaces the oldest one without a request.
"""

import logging
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

from cluster.control.door import Door, listening
from cluster.control.messages import (
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
"""Names the process that answers: another value at the same port is another process. A pid alone may repeat."""

MOST_CONNECTIONS = 128
REQUEST_SECONDS = 5.0
"""From the connection to the last byte of the request."""
ANSWER_SECONDS = 10.0
"""From the first byte of the answer to the last one."""
_CLOSE_SECONDS = 2.0


class Lane(Enum):
    """How many requests of a kind run at once; the others wait."""

    READ = 8
    ACT = 64


@dataclass(frozen=True)
class Work:
    """An answer that takes time: a thread of its own computes it."""

    lane: Lane
    compute: Callable[[], Reply]


Route = Callable[[Request], Reply | Work]
"""Decides what answers a request. Runs in the server's own thread, so it computes nothing."""


class _State(Enum):
    READING = "reading"
    ANSWERING = "answering"
    SENDING = "sending"


@dataclass(eq=False)
class _Connection:
    socket: socket.socket
    client: str
    begun: float
    deadline: float
    state: _State = _State.READING
    received: bytearray = field(default_factory=bytearray)
    request: Request | None = None
    whole_bytes: int = 0
    """Length of head and body, known once the head is there."""
    left: memoryview = field(default_factory=lambda: memoryview(b""))
    then: Callable[[], None] | None = None


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
        """The server's thread calls `turned` after each turn, and `computed` gets the CPU time of each answer.

        Raises OSError when the address cannot be bound.
        """
        self._door = Door(listening(host, port), purpose, most)
        self.port: int = self._door.listener.getsockname()[1]
        self._route, self._turned, self._computed = route, turned, computed
        self._process = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._connections: set[_Connection] = set()
        self._waiting: dict[Lane, deque[tuple[_Connection, Work]]] = {lane: deque() for lane in Lane}
        self._working: dict[Lane, set[threading.Thread]] = {lane: set() for lane in Lane}
        self._done: deque[tuple[Lane, threading.Thread, _Connection, Reply]] = deque()
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
        """Stop answering and free the port. Waits for the server's thread, and briefly for answers under way."""
        self._ends = True
        self._alarm()
        self._thread.join()
        for worker in self._working[Lane.READ]:
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
                self._expire(time.monotonic())
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
        ends = [one.deadline for one in self._connections if one.state is not _State.ANSWERING]
        if not self._hears:
            ends.append(self._door.closed_until)
        return max(0.0, min(ends) - now) if ends else None

    def _accept(self) -> None:
        for _ in range(self._door.at_once):
            accepted = self._door.accept()
            now = time.monotonic()
            if accepted is None:
                if self._door.pause_seconds:
                    self._evict()  # frees a descriptor for the next connection
                return
            connected, client = accepted
            if len(self._connections) >= self._door.most:
                self._door.full(client)
                if not self._evict():
                    connected.close()
                    continue
            connection = _Connection(connected, client, now, now + REQUEST_SECONDS)
            self._connections.add(connection)
            key = self._selector.register(connected, selectors.EVENT_READ, connection)
            self._ready(key)  # the request is often there already

    def _evict(self) -> bool:
        """Close the oldest connection without an answer under way; returns whether there was one."""
        idle = [one for one in self._connections if one.state is not _State.ANSWERING]
        if idle:
            self._close(min(idle, key=lambda one: one.begun))
        return bool(idle)

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
        """Whether the head is there and announces a valid body. Looks for its end from `searched` on."""
        end = connection.received.find(END_OF_HEAD, searched, MOST_HEAD_BYTES)
        if end < 0:
            if len(connection.received) >= MOST_HEAD_BYTES:
                self._answer(connection, Reply.words(431, f"expected at most {MOST_HEAD_BYTES} bytes before the body"))
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
        connection.request, connection.whole_bytes = request, len(head) + length
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
        self._waiting[answer.lane].append((connection, answer))
        self._next(answer.lane)

    def _next(self, lane: Lane) -> None:
        while self._waiting[lane] and len(self._working[lane]) < lane.value:
            connection, work = self._waiting[lane].popleft()
            worker = threading.Thread(target=self._compute, args=(connection, work), name="answer", daemon=True)
            self._working[lane].add(worker)
            try:
                worker.start()
            except RuntimeError:  # the system refuses another thread
                self._working[lane].discard(worker)
                self._answer(connection, Reply.words(503, "no thread is left to answer: ask again"))

    def _compute(self, connection: _Connection, work: Work) -> None:
        try:
            reply = work.compute()
        except Exception:
            log.warning("the answer to %s failed", connection.client, exc_info=True)
            reply = Reply.words(500, "the answer failed: the log of this process says why")
        self._computed(time.thread_time())  # this thread computed nothing else
        self._done.append((work.lane, threading.current_thread(), connection, reply))
        self._alarm()

    def _finish(self) -> None:
        while self._done:
            lane, worker, connection, reply = self._done.popleft()
            self._working[lane].discard(worker)
            self._answer(connection, reply)
            self._next(lane)

    def _answer(self, connection: _Connection, reply: Reply) -> None:
        if connection.state is _State.READING:
            self._selector.unregister(connection.socket)
        connection.state, connection.then = _State.SENDING, reply.then
        connection.left = memoryview(reply.encoded((PROCESS_HEADER, self._process)))
        connection.deadline = time.monotonic() + ANSWER_SECONDS
        self._selector.register(connection.socket, selectors.EVENT_WRITE, connection)
        try:
            self._send(connection)
        except OSError:
            self._close(connection)

    def _send(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.left)
        except (BlockingIOError, InterruptedError):
            return
        connection.left = connection.left[sent:]
        if connection.left:
            return
        self._close(connection)
        if connection.then is not None:
            try:
                connection.then()
            except Exception:
                log.warning("what follows the answer to %s failed", connection.client, exc_info=True)

    def _expire(self, now: float) -> None:
        for connection in [one for one in self._connections if one.state is not _State.ANSWERING]:
            if now >= connection.deadline:
                self._close(connection)

    def _close(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        if connection.state is not _State.ANSWERING:
            with suppress(KeyError, ValueError):
                self._selector.unregister(connection.socket)
        connection.socket.close()
