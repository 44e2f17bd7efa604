"""`/metrics`, `/ready` and, where it is allowed, `/restart`, `/drain/...` and `/run/...` over HTTP."""

import logging
import os
import secrets
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from cluster.metrics.cost import Cost
from cluster.metrics.drain import PREFIX as DRAIN
from cluster.metrics.drain import DrainRequests
from cluster.metrics.restart import RestartRequests
from cluster.metrics.runs import PREFIX as RUN
from cluster.metrics.runs import RunRequests
from cluster.metrics.scrapes import UNCOUNTED, Scrapes

log = logging.getLogger(__name__)

PROCESS_HEADER = "X-PSCluster-Process"
"""Names the process that answers: another value at the same port is another process. The pid alone may come again."""

LONGEST_BODY_BYTES = 65_536


class Exporter:
    """A running exporter; `port` is the one bound, also where 0 was asked for."""

    def __init__(self, server: "_Server") -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
        self._thread.start()
        self.port: int = server.server_address[1]
        self.scrapes = server.scrapes

    def close(self) -> None:
        """Stop answering and free the port. Waits for the serving thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(
    registry: CollectorRegistry,
    host: str,
    port: int,
    ready: Callable[[], bool],
    restarts: RestartRequests | None = None,
    drains: DrainRequests | None = None,
    cost: Cost | None = None,
    runs: RunRequests | None = None,
) -> Exporter:
    """Answer on `host:port` (0: any free port) from a thread of its own.

    `GET /metrics` is the registry in the Prometheus or OpenMetrics text format, `GET /ready` is 200 while `ready()`
    holds and 503 otherwise. `POST /restart` is 202 and obeyed from the addresses that `restarts` allows, 200 while it
    is fresh, 403 from others, and 404 without it; `POST /drain/NAME` is what `drains` answers, `POST /run/ID` what
    `runs` does. Every answer has the header PROCESS_HEADER. `cost` is told what all this takes. Raises OSError when the
    address cannot be bound.
    """
    return Exporter(_Server(registry, host, port, ready, restarts, drains, cost, runs))


class _Server(socketserver.ThreadingTCPServer):
    # Not http.server.HTTPServer: its server_bind looks the host's name up in the DNS, which on a switch without
    # one takes seconds.
    allow_reuse_address = True
    daemon_threads = True

    def __init__(
        self,
        registry: CollectorRegistry,
        host: str,
        port: int,
        ready: Callable[[], bool],
        restarts: RestartRequests | None,
        drains: DrainRequests | None,
        cost: Cost | None,
        runs: RunRequests | None,
    ) -> None:
        self.registry = registry
        self.cost, self.scrapes = cost, Scrapes()
        self.ready = ready
        self.restarts, self.drains, self.runs = restarts, drains, runs
        self.process = f"{os.getpid()}-{secrets.token_hex(8)}"
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has gone before the answer was there, which says nothing about us; else what went wrong."""
        problem = sys.exception()
        if not isinstance(problem, OSError):
            log.warning("the answer to %s failed", client_address[0], exc_info=problem)

    def service_actions(self) -> None:
        if self.cost is not None:
            self.cost.so_far("exporter")

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        super().process_request_thread(request, client_address)
        if self.cost is not None:
            self.cost.add(time.thread_time())  # a thread of its own: all it has computed was for this request


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "pscluster"
    sys_version = ""
    timeout = 5  # seconds; a client that connects and stays silent does not hold a thread for ever

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            with nullcontext() if self.path == UNCOUNTED else self.server.scrapes.one():
                self._answer(200, encode(self.server.registry), content_type)
        elif path == "/ready":
            ready = self.server.ready()
            self._answer(200 if ready else 503, b"ready\n" if ready else b"not ready\n")
        else:
            self._answer(404, b"expected /metrics or /ready\n")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if length.isdecimal():  # what is left unread would turn the end of the connection into a reset
            self.rfile.read(min(int(length), LONGEST_BODY_BYTES))
        client, own = self.client_address[0], self.connection.getsockname()[0]
        restarts, drains = self.server.restarts, self.server.drains
        if drains is not None and self.path.startswith(DRAIN):
            status, words = drains.answer(self.path, client, own)
            self._answer(status, f"{words}\n".encode())
        elif self.server.runs is not None and self.path.startswith(RUN):
            status, words = self.server.runs.answer(self.path, client, own)
            self._answer(status, f"{words}\n".encode())
        elif self.path != "/restart" or restarts is None:
            self._answer(404, b"nothing to POST to here\n")
        elif not restarts.allowed(client, own):
            self._answer(403, b"only the coordinator's node may restart this process\n")
        elif restarts.fresh():
            self._answer(200, b"starting already\n")
        else:
            self._answer(202, b"restarting\n")
            restarts.obey(client)

    def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header(PROCESS_HEADER, self.server.process)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Nothing: a scrape every few seconds would drown the role's own log."""
