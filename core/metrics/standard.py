"""The metrics that every process of a cluster exports."""

import platform
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from core import __version__
from core.metrics.catalogue import Identity
from core.metrics.node import FilesystemCollector, NodeCollector, firmware
from core.metrics.process import Cost, Gpu, GpuCollector, ProcessCollector, processor
from core.metrics.traffic import TrafficMeter

TENSORFLOW_PACKAGES = ("tensorflow-cpu", "tensorflow")


def tensorflow_version() -> str:
    """Return the version of the installed wheel, "none" without a wheel.

    It is from the metadata: an import would cost 140 MB.
    """
    for package in TENSORFLOW_PACKAGES:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "none"


class RoleCollector(Collector):
    """`pscluster_build_info`, which is always 1, and `pscluster_ready`."""

    def __init__(self, identity: Identity, server: str, ready: Callable[[], bool]) -> None:
        """`server`: lean, stock or client."""
        self._identity = identity
        self._ready = ready
        self._versions = [
            __version__,
            tensorflow_version(),
            platform.python_version(),
            server,
            processor(),
        ]

    def collect(self) -> Iterator[Metric]:
        """Evaluate `ready` at each scrape."""
        yield self._identity.sample("build_info", 1, *self._versions)
        yield self._identity.sample("ready", float(self._ready()))


def register(
    registry: CollectorRegistry,
    identity: Identity,
    *,
    metrics_port: int,
    server: str,
    ready: Callable[[], bool],
    cost: Cost,
    shared: str | None = None,
    gpu: int | None = None,
) -> TrafficMeter:
    """Register the metrics of this process, its node and its connections.

    Those of the `gpu` of this number come with them.

    The meter does not count the traffic of `metrics_port`. `shared` is the folder that all nodes
    share. The meter owns a thread: a process that outlives the meter must `close` it.
    """
    registry.register(cost)
    registry.register(ProcessCollector(identity))
    registry.register(NodeCollector(identity, firmware()))
    registry.register(FilesystemCollector(identity, shared))
    registry.register(RoleCollector(identity, server, ready))
    if gpu is not None:
        with suppress(OSError):  # no driver: the job that needs it is refused
            registry.register(GpuCollector(identity, Gpu(gpu), f"gpu:{gpu}", cost))
    meter = TrafficMeter(identity, [metrics_port], cost)
    registry.register(meter)
    return meter
