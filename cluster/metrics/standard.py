"""The metrics that every process of a cluster exports."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cluster.metrics.build import BuildCollector
from cluster.metrics.cost import Cost
from cluster.metrics.filesystems import FilesystemCollector
from cluster.metrics.identity import Identity
from cluster.metrics.node import NodeCollector
from cluster.metrics.process import ProcessCollector
from cluster.metrics.throttling import firmware
from cluster.metrics.traffic import TrafficMeter


class Ready(Collector):
    """Whether the process does its work."""

    def __init__(self, identity: Identity, ready: Callable[[], bool]) -> None:
        self._identity, self._ready = identity, ready

    def collect(self) -> Iterator[Metric]:
        """Asked anew each time."""
        yield self._identity.gauge("ready", float(self._ready()))


def register(
    registry: CollectorRegistry, identity: Identity, *, metrics_port: int, server: str, ready: Callable[[], bool],
    cost: Cost, shared: str | None = None,
) -> TrafficMeter:  # fmt: skip
    """Add what every process tells about itself, its node and its connections to a registry.

    Traffic of `metrics_port` is not counted. `shared` is the folder that all nodes share. The meter owns a thread:
    `close` it where the process goes on without it.
    """
    registry.register(cost)
    registry.register(Ready(identity, ready))
    registry.register(ProcessCollector(identity))
    registry.register(NodeCollector(identity, firmware()))
    registry.register(FilesystemCollector(identity, shared))
    registry.register(BuildCollector(identity, server))
    meter = TrafficMeter(identity, [metrics_port], cost)
    registry.register(meter)
    return meter
