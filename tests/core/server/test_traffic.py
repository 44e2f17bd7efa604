"""Traffic is what the kernel counted on this process's sockets."""

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from core.metrics.catalogue import Identity, ReadingsCollector
from core.metrics.process import Cost
from core.metrics.sockets import borrowed, own_sockets
from core.metrics.standard import TrafficMeter, of_connection

PAYLOAD = b"w" * 300_000
HANDSHAKE_BYTES = 2
"""SYN and FIN each take a place in the sequence, hence count as acknowledged."""


Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends of a TCP connection; `pair[1]` is the accepted one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connecting = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    with connecting, accepted:
        yield connecting, accepted


def meter(*excluded: int) -> contextlib.closing[TrafficMeter]:
    return contextlib.closing(TrafficMeter(excluded, Cost()))


def carry(source: socket.socket, target: socket.socket) -> None:
    """Send the payload from one end to the other, in parts that no buffer is too small for."""
    for start in range(0, len(PAYLOAD), 10_000):
        source.sendall(PAYLOAD[start : start + 10_000])
        assert len(target.recv(10_000, socket.MSG_WAITALL)) == 10_000


def test_a_connection_counts_its_bytes_and_segments(
    pair: Pair,
) -> None:
    connecting, accepted = pair
    carry(connecting, accepted)
    received = of_connection(accepted)
    assert received.received_bytes == len(PAYLOAD)
    assert received.sent_bytes <= HANDSHAKE_BYTES
    assert 5 <= received.received_packets < 1000
    carry(accepted, connecting)
    assert of_connection(connecting).received_bytes == len(PAYLOAD)
    assert of_connection(connecting).sent_packets >= 5


def test_totals_go_on_where_connections_end_and_are_exported(pair: Pair) -> None:
    connecting, accepted = pair
    registry = CollectorRegistry(auto_describe=False)
    with meter() as counting:
        registry.register(ReadingsCollector(Identity("ps", 0), counting.read))
        before = counting.total()
        carry(connecting, accepted)
        carried = counting.total()
        assert carried.received_bytes - before.received_bytes == len(PAYLOAD)
        accepted.close()
        connecting.close()
        closed = counting.total()
        assert closed.received_bytes == carried.received_bytes
        assert closed.sent_bytes >= carried.sent_bytes
        assert counting.total() == closed
        text = generate_latest(registry).decode()
    for name in ("receive_bytes", "receive_packets", "transmit_bytes", "transmit_packets"):
        assert f'pscluster_network_{name}_total{{role="ps",task="0"}} ' in text


def test_the_metrics_port_does_not_count(pair: Pair) -> None:
    connecting, accepted = pair
    with meter(accepted.getsockname()[1]) as counting:
        before = counting.total()
        carry(connecting, accepted)
        assert counting.total().received_bytes == before.received_bytes


def test_borrowing_a_descriptor_leaves_it_open(pair: Pair) -> None:
    connecting, accepted = pair
    with borrowed(accepted.fileno()) as view:
        assert view.getpeername() == connecting.getsockname()
    accepted.sendall(b"x")
    assert connecting.recv(1) == b"x"


def test_own_sockets_are_sockets_only(pair: Pair) -> None:
    connecting, accepted = pair
    with open(os.devnull, "rb") as file:
        found = dict(own_sockets())
        assert file.fileno() not in found
    for one in (connecting, accepted):
        assert found[one.fileno()] == os.fstat(one.fileno()).st_ino
