"""The metrics that every process of a cluster exports."""

import platform
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cluster import __version__
from cluster.metrics.filesystems import FilesystemCollector
from cluster.metrics.instruments import Identity
from cluster.metrics.node import NodeCollector, firmware
from cluster.metrics.process import Cost, ProcessCollector
from cluster.metrics.processor import processor
from cluster.metrics.traffic import TrafficMeter

TENSORFLOW_PACKAGES = ("tensorflow-cpu", "tensorflow")


def tensorflow_version() -> str:
    """Version of the installed wheel, from its metadata: an import would cost 140 MB. "none" without a wheel."""
    for package in TENSORFLOW_PACKAGES:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "none"


class BuildCollector(Collector):
    """`pscluster_build_info`, always 1: versions, the kind of server (lean, stock or client) and the processor."""

    def __init__(self, identity: Identity, server: str) -> None:
        self._identity = identity
        self._versions = [__version__, tensorflow_version(), platform.python_version(), server, processor()]

    def collect(self) -> Iterator[Metric]:
        """The one sample."""
        yield self._identity.info("build_info", *self._versions)


class Ready(Collector):
    """Whether the process is ready to work."""

    def __init__(self, identity: Identity, ready: Callable[[], bool]) -> None:
        self._identity, self._ready = identity, ready

    def collect(self) -> Iterator[Metric]:
        """Evaluate `ready` at each scrape."""
        yield self._identity.gauge("ready", float(self._ready()))


def register(
    registry: CollectorRegistry, identity: Identity, *, metrics_port: int, server: str, ready: Callable[[], bool],
    cost: Cost, shared: str | None = None,
) -> TrafficMeter:  # fmt: skip
    """Register the metrics of this process, its node and its connections.

    The meter does not count the traffic of `metrics_port`. `shared` is the folder that all nodes share. The meter owns
    a thread: a process that outlives the meter must `close` it.
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
