"""Which versions a process runs."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cluster import __version__
from cluster.metrics.identity import Identity
from cluster.metrics.processor import processor

TENSORFLOW_PACKAGES = ("tensorflow-cpu", "tensorflow")


def tensorflow_version() -> str:
    """Version of the installed wheel, from its metadata: importing it would cost 140 MB. "none" without one."""
    for package in TENSORFLOW_PACKAGES:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "none"


class BuildCollector(Collector):
    """`pscluster_build_info`, always 1.

    `server` is the kind of TensorFlow server: lean, stock or client; `processor` that of the node's processor.
    """

    def __init__(self, identity: Identity, server: str) -> None:
        self._identity = identity
        self._versions = [__version__, tensorflow_version(), platform.python_version(), server, processor()]

    def collect(self) -> Iterator[Metric]:
        """The one sample."""
        yield self._identity.info("build_info", *self._versions)
