"""`/metrics` and `/ready` over HTTP."""

import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder


class Exporter:
    """A running exporter; `port` is the one bound, also where 0 was asked for."""

    def __init__(self, server: "_Server") -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
        self._thread.start()
        self.port: int = server.server_address[1]

    def close(self) -> None:
        """Stop answering and free the port. Waits for the serving thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(registry: CollectorRegistry, host: str, port: int, ready: Callable[[], bool]) -> Exporter:
    """Answer on `host:port` (0: any free port) from a thread of its own.

    `GET /metrics` is the registry in the Prometheus or OpenMetrics text format, `GET /ready` is 200 while `ready()`
    holds and 503 otherwise. Raises OSError when the address cannot be bound.
    """
    return Exporter(_Server(registry, host, port, ready))


class _Server(socketserver.ThreadingTCPServer):
    # Not http.server.HTTPServer: its server_bind looks the host's name up in the DNS, which on a switch without
    # one takes seconds.
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, registry: CollectorRegistry, host: str, port: int, ready: Callable[[], bool]) -> None:
        self.registry = registry
        self.ready = ready
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "pscluster"
    sys_version = ""
    timeout = 5  # seconds; a client that connects and stays silent does not hold a thread for ever

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, encode(self.server.registry), content_type)
        elif path == "/ready":
            ready = self.server.ready()
            self._answer(200 if ready else 503, b"ready\n" if ready else b"not ready\n", "text/plain; charset=utf-8")
        else:
            self._answer(404, b"expected /metrics or /ready\n", "text/plain; charset=utf-8")

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Nothing: a scrape every few seconds would drown the role's own log."""
