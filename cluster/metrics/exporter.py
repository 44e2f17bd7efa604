"""`/metrics` and `/ready` over HTTP, and the actions a process offers: `/restart`, `/drain/...`, `/run/...`."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from cluster.control import drain, restart, runs
from cluster.control.drain import DrainRequests
from cluster.control.messages import Reply, Request
from cluster.control.restart import RestartRequests
from cluster.control.rules import Acting, Rules
from cluster.control.runs import RunRequests
from cluster.control.server import PROCESS_HEADER, Lane, Server, Work
from cluster.metrics.process import Cost
from cluster.metrics.scrapes import UNCOUNTED, Scrapes

__all__ = ["PROCESS_HEADER", "Exporter", "serve"]


@dataclass(frozen=True)
class Actions:
    """What a process does on `POST`; it answers 404 for an action that is None."""

    restarts: RestartRequests | None = None
    drains: DrainRequests | None = None
    runs: RunRequests | None = None


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
    actions: Actions = Actions(),  # noqa: B008  frozen
    cost: Cost | None = None,
    rules: Rules = Rules(),  # noqa: B008  frozen
) -> Exporter:
    """Answer on `host:port` (0: any free port) from a thread of its own.

    `GET /metrics` is the registry in the Prometheus or OpenMetrics text format, `GET /ready` is 200 while `ready()`
    holds and 503 otherwise. `POST /restart` is 202 and starts a restart, 200 while the process is fresh, and 403 for
    addresses that `actions.restarts` does not allow; `actions.drains` answers `POST /drain/NAME`, `actions.runs`
    answers `POST /run/ID`. `rules` decide who may call any of them. Every answer has the header PROCESS_HEADER. `cost`
    counts the CPU time of it all. Raises OSError when the address cannot be bound.
    """
    scrapes = Scrapes()
    routes = _Routes(registry, ready, scrapes, actions, rules)
    if cost is None:
        return Exporter(Server(host, port, routes, "the metrics port"), scrapes)
    server = Server(
        host, port, routes, "the metrics port", turned=lambda: cost.so_far("exporter"), computed=cost.add
    )  # fmt: skip
    return Exporter(server, scrapes)


class _Routes:
    """Routes a request to its answer, under the rules."""

    def __init__(
        self,
        registry: CollectorRegistry,
        ready: Callable[[], bool],
        scrapes: Scrapes,
        actions: Actions,
        rules: Rules,
    ) -> None:
        self._registry, self._ready, self._scrapes = registry, ready, scrapes
        self._actions, self._rules = actions, rules

    def __call__(self, request: Request) -> Reply | Work:
        if request.method == "GET":
            return self._get(request)
        if request.method == "POST":
            return self._post(request)
        return Reply.words(501, "expected GET or POST")

    def _get(self, request: Request) -> Reply | Work:
        if request.path not in ("/metrics", "/ready"):
            return Reply.words(404, "expected /metrics or /ready")
        if (refusal := self._rules.refusal(request)) is not None:
            return Reply.words(*refusal)
        return Work(Lane.READ, self._readiness if request.path == "/ready" else lambda: self._exported(request))

    def _readiness(self) -> Reply:
        return Reply.words(200, "ready") if self._ready() else Reply.words(503, "not ready")

    def _exported(self, request: Request) -> Reply:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        with ExitStack() as stack:
            if request.target != UNCOUNTED:
                stack.enter_context(self._scrapes.one())
            body = encode(self._registry)
            return Reply(200, body, content_type, stack.pop_all().close)  # a scrape counts once its answer is sent

    def _post(self, request: Request) -> Reply | Work:
        found = self._action(request)
        if found is None:
            return Reply.words(404, "nothing to POST to here")
        acting, answer = found
        refusal = self._rules.refusal(request, acting)
        return answer() if refusal is None else Reply.words(*refusal)

    def _action(self, request: Request) -> tuple[Acting, Callable[[], Reply | Work]] | None:
        target, client = request.target, request.client
        if (drains := self._actions.drains) is not None and target.startswith(drain.PREFIX):
            return drains.acting, lambda: Work(Lane.ACT, lambda: Reply.words(*drains.answer(target)))
        if (named := self._actions.runs) is not None and target.startswith(runs.PREFIX):
            return named.acting, lambda: Work(Lane.ACT, lambda: Reply.words(*named.answer(target)))
        if (restarts := self._actions.restarts) is not None and target == restart.PATH:
            return restarts.acting, lambda: _restarting(restarts, client)
        return None


def _restarting(restarts: RestartRequests, client: str) -> Reply:
    if restarts.fresh():
        return Reply.words(200, "starting already")
    # In a thread of its own: the restart may end the server that answers.
    obeying = threading.Thread(target=restarts.obey, args=(client,), name="restart", daemon=True)
    return Reply.words(202, "restarting", obeying.start)
