"""The coordinator's own /metrics, from the start of a job until its last figures were read."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from prometheus_client import CollectorRegistry

from cluster.control.actions import Actions, Answer
from cluster.engine.membership import Membership
from cluster.inventory import Task
from cluster.metrics.exporter import Exporter, serve
from cluster.metrics.instruments import Identity
from cluster.metrics.process import Cost
from cluster.metrics.standard import register
from cluster.server.sockets import explain
from cluster.status.events import Consumer, Event, Stream

log = logging.getLogger(__name__)


class CoordinatorMetrics:
    """A job's registry, and its exporter once the job has its cluster."""

    def __init__(
        self, shared: str | None = None, busy: Callable[[str], AbstractContextManager[object]] = nullcontext
    ) -> None:  # fmt: skip
        """`shared`: the folder that all nodes share. `busy` shows a person what the job waits for."""
        self._shared, self._busy = shared, busy
        self._identity = Identity("coordinator", 0)
        self.registry = CollectorRegistry()
        self.cost = Cost(self._identity)
        self.membership: Membership | None = None
        """The workers, from the moment at which they may join. Any thread may look at it."""
        self._stack = ExitStack()
        self._exporter: Exporter | None = None

    def __enter__(self) -> "CoordinatorMetrics":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def metered(self, *consumers: Consumer) -> Consumer:
        """A consumer that hands every event to these, and counts what they compute as cost of the metrics."""
        stream = Stream(*consumers)

        def consume(event: Event) -> None:
            begin = time.thread_time()
            stream.emit(event)
            self.cost.add(time.thread_time() - begin)

        return consume

    def serve(self, coordinator: Task, drain: Callable[[str, float], Answer] | None = None) -> None:
        """Answer until `close`. Raises ClusterError if the port is taken."""
        with ExitStack() as stack:
            try:
                exporter = serve(
                    self.registry, coordinator.host, coordinator.metrics_port, lambda: True,
                    actions=Actions(drain), cost=self.cost,
                )  # fmt: skip
            except OSError as problem:
                raise explain(
                    problem, coordinator.host, coordinator.metrics_port, "the coordinator's metrics"
                ) from None
            stack.callback(exporter.close)
            meter = register(
                self.registry, self._identity, metrics_port=coordinator.metrics_port, server="client",
                ready=lambda: True, cost=self.cost, shared=self._shared,
            )  # fmt: skip
            stack.callback(meter.close)
            self._stack, self._exporter = stack.pop_all(), exporter

    @contextmanager
    def until_read(self, stop: Callable[[], bool]) -> Iterator[None]:
        """After the body, wait until a scraper has read the last figures, unless `stop()`; then close.

        Otherwise the figures of the last seconds, and that a training diverged, would never reach a Prometheus.
        """
        try:
            yield
            self._linger(stop)
        except Exception:
            self._linger(stop)
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Stop answering and free the port."""
        self._stack.close()

    def _linger(self, stop: Callable[[], bool]) -> None:
        if self._exporter is not None and self._exporter.scrapes.watched:
            log.info("the last metrics wait to be read")
            with self._busy("waiting until the last metrics are read"):
                read = self._exporter.scrapes.linger(stop)
            log.info("the last metrics were %s", "read" if read else "not read")
