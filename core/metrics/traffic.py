"""Bytes and packets over this process's own TCP sockets, counted by the kernel (TCP_INFO).

The kernel measures the wire itself, without root; tensor shapes would give an estimate only.
TensorFlow's sockets are among them, found under /proc/self/fd.
"""

import os
import socket
import stat
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from core.metrics.catalogue import Identity
from core.metrics.process import Cost

DESCRIPTORS = Path("/proc/self/fd")
LISTENING_STATE = 1
"""Answer of SO_ACCEPTCONN for a listening socket."""


def own_sockets() -> Iterator[tuple[int, int]]:
    """Yield descriptor and inode of each open socket.

    The inode distinguishes sockets that reuse a descriptor number.
    """
    for name in os.listdir(DESCRIPTORS):
        descriptor = int(name)
        try:
            status = os.fstat(descriptor)  # a tenth of the cost of reading the link
        except OSError:  # closed since it was listed
            continue
        if stat.S_ISSOCK(status.st_mode):
            yield descriptor, status.st_ino


@contextmanager
def borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A socket object over a descriptor whose owner keeps it.

    Not a dup: gRPC's epoll keeps reporting a connection that gRPC has closed while a duplicate
    lives. Raises OSError for a descriptor that is closed meanwhile.
    """
    view = socket.socket(fileno=descriptor)
    try:
        yield view
    finally:
        view.detach()


def is_tcp(view: socket.socket) -> bool:
    """Whether this is TCP over IPv4 or IPv6."""
    return view.family in (socket.AF_INET, socket.AF_INET6) and view.type == socket.SOCK_STREAM


def is_listening(view: socket.socket) -> bool:
    """Whether the socket accepts connections."""
    return view.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == LISTENING_STATE


SAMPLE_SECONDS = 1.0
TCP_INFO_FIELDS = struct.Struct("=120xQQII")
"""tcpi_bytes_acked, tcpi_bytes_received, tcpi_segs_out, tcpi_segs_in of struct tcp_info, at offsets
120 to 144 in include/uapi/linux/tcp.h since Linux 4.2; the structure only ever grows at its end."""


@dataclass(frozen=True)
class Traffic:
    """Payload bytes, without headers, and TCP segments.

    Sent bytes count once acknowledged; segments include bare acknowledgements.
    """

    received_bytes: int = 0
    sent_bytes: int = 0
    received_packets: int = 0
    sent_packets: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.received_bytes + other.received_bytes,
            self.sent_bytes + other.sent_bytes,
            self.received_packets + other.received_packets,
            self.sent_packets + other.sent_packets,
        )


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
    acknowledged, received, segments_out, segments_in = TCP_INFO_FIELDS.unpack(raw)
    return Traffic(received, acknowledged, segments_in, segments_out)


class TrafficMeter(Collector):
    """Totals over all connections since the start, without those of the excluded local ports.

    A thread samples once a second, so that a connection loses at most its last second when it
    closes. Each scrape samples again. `close` ends the thread.
    """

    def __init__(self, identity: Identity, excluded_ports: Iterable[int], cost: Cost) -> None:
        self._identity = identity
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
            for inode in self._open.keys() - connections.keys():
                self._closed += self._open[inode]
            self._open = connections
            return sum(connections.values(), self._closed)

    def close(self) -> None:
        """End the sampling thread."""
        self._stop.set()
        self._thread.join()

    def collect(self) -> Iterator[Metric]:
        """Bytes and packets, received and sent."""
        total = self.total()
        sample = self._identity.sample
        yield sample("network_receive_bytes_total", total.received_bytes)
        yield sample("network_transmit_bytes_total", total.sent_bytes)
        yield sample("network_receive_packets_total", total.received_packets)
        yield sample("network_transmit_packets_total", total.sent_packets)

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
