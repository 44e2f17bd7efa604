"""The coordinator's own /metrics, from the start of a job until its last figures were read."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from prometheus_client import CollectorRegistry

from cluster.control.actions import Actions, DrainRequests
from cluster.inventory import Task
from cluster.jobs.observer import Observer, Observers
from cluster.metrics.exporter import Exporter, serve
from cluster.metrics.instruments import Identity
from cluster.metrics.process import Cost
from cluster.metrics.standard import register
from cluster.server.ports import explain

log = logging.getLogger(__name__)


class CoordinatorMetrics:
    """A job's registry, the observers that fill it, and its exporter once the job has its cluster."""

    def __init__(
        self, shared: str | None = None, busy: Callable[[str], AbstractContextManager[object]] = nullcontext
    ) -> None:  # fmt: skip
        """`shared`: the folder that all nodes share. `busy` shows a person what is waited for."""
        self._shared, self._busy = shared, busy
        self._identity = Identity("coordinator", 0)
        self.registry = CollectorRegistry()
        self.cost = Cost(self._identity)
        self._stack = ExitStack()
        self._exporter: Exporter | None = None

    def __enter__(self) -> "CoordinatorMetrics":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def told(self, *observers: Observer) -> Observer:
        """One that passes everything on to these, and counts what they compute as cost of the metrics."""
        return _Metered(self.cost, *observers)

    def serve(self, coordinator: Task, drains: DrainRequests | None = None) -> None:
        """Answer until `close`. Raises ClusterError if the port is taken."""
        with ExitStack() as stack:
            try:
                exporter = serve(
                    self.registry, coordinator.host, coordinator.metrics_port, lambda: True,
                    actions=Actions(drains), cost=self.cost,
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
        """Lets whoever reads the metrics read the last ones after what is inside, unless `stop()`; then closes.

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


class _Metered(Observers):
    """Tells several, and counts what they compute."""

    def __init__(self, cost: Cost, *observers: Observer) -> None:
        super().__init__(*observers)
        self._cost = cost


def _metered(name: str) -> object:
    tell = getattr(Observers, name)

    def told(self: _Metered, *values: object, **named: object) -> None:
        begin = time.thread_time()
        try:
            tell(self, *values, **named)
        finally:
            self._cost.add(time.thread_time() - begin)

    told.__name__ = name
    return told


for _name in [name for name in vars(Observer) if not name.startswith("_")]:
    setattr(_Metered, _name, _metered(_name))
