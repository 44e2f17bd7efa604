"""A small HTTP server that no client can exhaust.

A connection carries one request, which has a deadline and a size. A thread reads and answers each;
a connection over the limit replaces the oldest one without a request.
"""

import logging
import os
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from io import BufferedReader
from typing import Any

from core.control.client import Received
from core.control.door import PAUSE_SECONDS, SHORTAGES, Listener, Visitor
from core.control.requests import (
    END_OF_HEAD,
    MOST_BODY_BYTES,
    MOST_HEAD_BYTES,
    BadRequestError,
    Reply,
    Request,
    parse,
)
from core.ground.waiting import pause

log = logging.getLogger(__name__)

PROCESS_HEADER = "X-PSCluster-Process"
"""Names the process that answers: another value at the same port is another process. A pid alone
may repeat."""

MOST_CONNECTIONS = 64
REQUEST_SECONDS = 5.0
"""Time from the connection to the last byte of the request."""
ANSWER_SECONDS = 10.0
"""Time from the first byte of the answer to the last one."""
_CLOSE_SECONDS = 2.0
_TURN_SECONDS = 60.0
"""Longest wait of the server's thread; a connection, and the end, wake it up."""

Route = Callable[[Request], Reply]
"""Answers a request, in a thread of its own."""


class Server(socketserver.ThreadingTCPServer):
    """A running server; `port` is the one bound, also where 0 was asked for."""

    daemon_threads = True

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
        super().__init__((host, port), _Conversation, bind_and_activate=False)
        self.socket.close()
        self.listener = Listener(host, port, purpose, most)
        self.socket = self.listener
        self.port = self.listener.port
        self.route = route
        self.computed = computed
        self.process = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._turned = turned
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_TURN_SECONDS,), name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port.

        Waits for the server's thread, and briefly for answers under way.
        """
        self.listener.shutdown(socket.SHUT_RDWR)  # its thread wakes up
        self.shutdown()
        self._thread.join()
        self.server_close()
        self.listener.end_all(_CLOSE_SECONDS)

    def get_request(self) -> tuple[Visitor, Any]:
        """Accept a connection. Raises OSError, at a bounded rate while descriptors are short."""
        try:
            return self.listener.accept()
        except OSError as problem:
            if problem.errno in SHORTAGES:
                pause(PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread, or with 503 where the system has no more of them."""
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            reply = Reply.words(503, "no thread is left to answer: ask again")
            request.send(reply.encoded((PROCESS_HEADER, self.process)))
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Say that a turn is over."""
        self._turned()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what failed on a connection: it must not end the server."""
        log.warning("the answer to %s failed", client_address[0], exc_info=True)


class _Conversation(socketserver.StreamRequestHandler):
    """One connection: a request, its answer, and what follows it."""

    server: Server
    request: Visitor

    def handle(self) -> None:
        try:
            reply = self._reply()
            self.request.settimeout(ANSWER_SECONDS)  # of all of it
            headers = (PROCESS_HEADER, self.server.process)
            self.wfile.write(reply.encoded(headers))
        except OSError:  # the client has gone, or its time was over
            return
        finally:
            self.server.computed(time.thread_time())  # this thread computed nothing else
        self.server.shutdown_request(self.request)
        if reply.then is not None:
            reply.then()

    def _reply(self) -> Reply:
        try:
            request = self._read()
        except BadRequestError as problem:
            return problem.reply
        self.request.prove()
        with self.request.request():
            try:
                return self.server.route(request)
            except Exception:
                self.server.handle_error(self.request, self.client_address)
                return Reply.words(500, "the answer failed: the log of this process says why")

    def _read(self) -> Request:
        """Return the request once its body is there. Raises BadRequestError and OSError."""
        received = BufferedReader(Received(self.request, time.monotonic() + REQUEST_SECONDS))
        head = b""
        while not head.endswith(END_OF_HEAD):
            line = received.readline(MOST_HEAD_BYTES - len(head) + 1)
            head += line
            if len(head) > MOST_HEAD_BYTES:
                raise BadRequestError(
                    431, f"expected at most {MOST_HEAD_BYTES} bytes before the body"
                )
            if not line:
                raise ConnectionAbortedError("the connection ended before its request")
        request = parse(head, self.client_address[0], self.request.getsockname()[0])
        length = request.body_bytes
        if length is None:
            raise BadRequestError(411, "expected the body's length as one Content-Length")
        if length > MOST_BODY_BYTES:
            raise BadRequestError(413, f"expected a body of at most {MOST_BODY_BYTES} bytes")
        if len(received.read(length)) < length:
            raise ConnectionAbortedError("the connection ended within its body")
        return request
