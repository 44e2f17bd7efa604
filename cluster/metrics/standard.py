"""The metrics that every process of a cluster exports."""

from prometheus_client import CollectorRegistry

from cluster.metrics.build import BuildCollector
from cluster.metrics.identity import Identity
from cluster.metrics.node import NodeCollector
from cluster.metrics.process import ProcessCollector
from cluster.metrics.traffic import TrafficMeter


def register(registry: CollectorRegistry, identity: Identity, *, metrics_port: int, server: str) -> TrafficMeter:
    """Add process, node, network and build metrics to a registry.

    Traffic of `metrics_port` is not counted. The meter owns a thread: `close` it where the process goes on without it.
    """
    registry.register(ProcessCollector(identity))
    registry.register(NodeCollector(identity))
    registry.register(BuildCollector(identity, server))
    meter = TrafficMeter(identity, [metrics_port])
    registry.register(meter)
    return meter
