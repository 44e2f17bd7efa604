"""`/metrics` and `/ready` over HTTP.

Their port also takes a process's actions (`core.control`).
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from core.control.actions import Actions, Routes
from core.control.requests import Reply, Request, Rules
from core.control.server import PROCESS_HEADER, Server
from core.metrics import UNCOUNTED, Scrapes
from core.metrics.process import Cost

__all__ = ["PROCESS_HEADER", "Exporter", "serve"]


class Exporter:
    """A running exporter; `port` is the bound one, also for port 0."""

    def __init__(self, server: Server, scrapes: Scrapes) -> None:
        self._server = server
        self.port: int = server.port
        self.scrapes = scrapes

    def close(self) -> None:
        """Free the port. Waits for the serving thread."""
        self._server.close()


def serve(
    registry: CollectorRegistry,
    host: str,
    port: int,
    ready: Callable[[], bool],
    *,
    actions: Actions | None = None,
    rules: Rules | None = None,
    cost: Cost | None = None,
) -> Exporter:
    """Answer on `host:port` (0: any free port) from a thread of its own.

    `GET /metrics` is the registry in the Prometheus or OpenMetrics text format, `GET /ready` is 200
    while `ready()` holds and 503 otherwise. `actions` are what this process does on request,
    `rules` decide who may call what. Every answer has the header PROCESS_HEADER. `cost` counts the
    CPU time of it all. Raises OSError when the address cannot be bound.
    """
    scrapes = Scrapes()

    def readiness(_: Request) -> Reply:
        if ready():
            return Reply.words(200, "ready")
        return Reply.words(503, "not ready")

    def exported(request: Request) -> Reply:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        with ExitStack() as stack:
            if request.target != UNCOUNTED:
                stack.enter_context(scrapes.one())
            body = encode(registry)
            return Reply(
                200, body, content_type, stack.pop_all().close
            )  # a scrape counts once its answer is sent

    routes = Routes({"/metrics": exported, "/ready": readiness}, actions, rules)
    cost = cost or Cost()
    server = Server(
        host,
        port,
        routes,
        "the metrics port",
        turned=partial(cost.so_far, "exporter"),
        computed=cost.add,
    )
    return Exporter(server, scrapes)
