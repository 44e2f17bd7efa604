"""The coordinator's own /metrics, for as long as a job runs."""

from contextlib import ExitStack

from prometheus_client import CollectorRegistry

from cluster.inventory import Task
from cluster.metrics.drain import DrainRequests
from cluster.metrics.exporter import serve
from cluster.metrics.identity import Identity
from cluster.metrics.standard import register
from cluster.server.ports import explain


def coordinator_metrics(
    registry: CollectorRegistry, coordinator: Task, drains: DrainRequests | None = None
) -> ExitStack:
    """Serve `registry` until the stack is closed. Raises ClusterError if the port is taken."""
    with ExitStack() as stack:
        try:
            exporter = serve(registry, coordinator.host, coordinator.metrics_port, lambda: True, drains=drains)
        except OSError as problem:
            raise explain(problem, coordinator.host, coordinator.metrics_port, "the coordinator's metrics") from None
        stack.callback(exporter.close)
        identity = Identity("coordinator", 0)
        meter = register(registry, identity, metrics_port=coordinator.metrics_port, server="client")
        stack.callback(meter.close)
        return stack.pop_all()
