"""The metrics that every process of a cluster exports, and its traffic.

Traffic is bytes and packets over this process's own TCP sockets. The kernel counts the wire itself
(TCP_INFO), without root; tensor shapes would give an estimate only.
"""

import platform
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from core import __version__
from core.metrics.catalogue import Identity, Reading, ReadingsCollector
from core.metrics.node import Filesystems, NodeMeter, firmware
from core.metrics.process import Cost, Gpu, GpuMeter, processor, read_process
from core.metrics.sockets import borrowed, is_listening, is_tcp, own_sockets

SAMPLE_SECONDS = 1.0
TCP_INFO_FIELDS = struct.Struct("=120xQQII")
"""tcpi_bytes_acked, tcpi_bytes_received, tcpi_segs_out, tcpi_segs_in of struct tcp_info, at offsets
120 to 144 in include/uapi/linux/tcp.h since Linux 4.2; the structure only ever grows at its end."""


class Traffic(NamedTuple):
    """Payload bytes, without headers, and TCP segments.

    Sent bytes count once acknowledged; segments include bare acknowledgements.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    sent_packets: int = 0
    received_packets: int = 0


TRAFFIC = (
    "network_transmit_bytes_total",
    "network_receive_bytes_total",
    "network_transmit_packets_total",
    "network_receive_packets_total",
)
"""The metrics of each field."""


def of_connection(connection: socket.socket) -> Traffic:
    """The traffic of a TCP connection since it opened.

    Raises OSError for a closed one or a kernel before 4.2.
    """
    raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_FIELDS.size)
    if len(raw) < TCP_INFO_FIELDS.size:
        raise OSError(
            f"TCP_INFO has {len(raw)} bytes, expected {TCP_INFO_FIELDS.size}: Linux 4.2 or newer is"
            " needed"
        )
    return Traffic(*TCP_INFO_FIELDS.unpack(raw))


def _sum(traffic: Iterable[Traffic]) -> Traffic:
    return Traffic(*map(sum, zip(*traffic, strict=True)))


class TrafficMeter:
    """Totals over all connections since the start, without those of the excluded local ports.

    A thread samples once a second, so that a connection loses at most its last second when it
    closes. Each scrape samples again. `close` ends the thread.
    """

    def __init__(self, excluded_ports: Iterable[int], cost: Cost) -> None:
        self._cost = cost
        self._excluded = frozenset(excluded_ports)
        self._lock = threading.Lock()
        self._open: dict[int, Traffic] = {}
        self._skipped: frozenset[int] = frozenset()
        """Inodes of sockets that do not count, as of the latest sample."""
        self._closed = Traffic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="traffic", daemon=True)
        self._thread.start()

    def total(self) -> Traffic:
        """The traffic until now."""
        with self._lock:
            connections = dict(self._connections())
            ended = [self._open[inode] for inode in self._open.keys() - connections.keys()]
            self._closed = _sum([self._closed, *ended])
            self._open = connections
            return _sum([self._closed, *connections.values()])

    def close(self) -> None:
        """End the sampling thread."""
        self._stop.set()
        self._thread.join()

    def read(self) -> Iterator[Reading]:
        """Bytes and packets, received and sent."""
        yield from map(Reading, TRAFFIC, self.total())

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self.total()
            self._cost.so_far("traffic")

    def _connections(self) -> Iterator[tuple[int, Traffic]]:
        skipped = set()
        for descriptor, inode in own_sockets():
            if inode in self._skipped:
                skipped.add(inode)
                continue
            try:
                with borrowed(descriptor) as view:
                    if (
                        is_tcp(view)
                        and not is_listening(view)
                        and view.getsockname()[1] not in self._excluded
                    ):
                        yield inode, of_connection(view)
                    elif not is_tcp(view) or is_listening(view):
                        skipped.add(inode)  # final; a TCP socket may yet listen or connect
            except OSError:  # closed since it was listed
                continue
        self._skipped = frozenset(skipped)


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

    `server` is lean, stock or client. The metrics of the `gpu` of this number come with them.

    The meter does not count the traffic of `metrics_port`. `shared` is the folder that all nodes
    share. The meter owns a thread: a process that outlives the meter must `close` it.
    """
    versions = (
        __version__,
        tensorflow_version(),
        platform.python_version(),
        server,
        processor(),
    )

    def read_role() -> Iterator[Reading]:
        yield Reading("build_info", 1, versions)
        yield Reading("ready", ready())

    meter = TrafficMeter([metrics_port], cost)
    sources = [
        cost.read,
        read_process,
        NodeMeter(firmware()).read,
        Filesystems(shared).read,
        read_role,
    ]
    if gpu is not None:
        with suppress(OSError):  # no driver: the job that needs it is refused
            sources.append(GpuMeter(Gpu(gpu), f"gpu:{gpu}", cost).read)
    registry.register(ReadingsCollector(identity, *sources, meter.read))
    return meter
