"""Bytes on the wire, read from metrics as a role exports them."""

import pytest
from prometheus_client import CollectorRegistry, Counter

from cluster.jobs.roles import RoleTraffic, WireMeter, traffic_of
from core.ground.errors import ClusterError
from core.inventory import Task
from core.metrics.exporter import serve


def server(metrics_port: int) -> Task:
    return Task("ps", 0, "here", "127.0.0.1", 1, metrics_port)


def test_reads_the_counters_and_says_what_is_missing() -> None:
    registry = CollectorRegistry()
    for name, value in (("transmit_bytes", 1000), ("receive_bytes", 2000), ("transmit_packets", 3)):
        Counter(f"pscluster_network_{name}", name, ("role",), registry=registry).labels("ps").inc(
            value
        )
    exporter = serve(registry, "127.0.0.1", 0, lambda: True)
    try:
        with pytest.raises(ClusterError, match="receive_packets"):
            traffic_of(server(exporter.port))
        Counter("pscluster_network_receive_packets", "", ("role",), registry=registry).labels(
            "ps"
        ).inc(4)
        assert traffic_of(server(exporter.port)) == RoleTraffic(1000, 2000, 7)
    finally:
        exporter.close()


def test_stretches_add_up_and_one_that_was_not_read_is_left_out() -> None:
    meter = WireMeter()
    assert meter.describe() == dict.fromkeys(
        ("pull_bytes_per_step", "push_bytes_per_step", "packets_per_step")
    )
    meter.add(RoleTraffic(0, 10, 0), RoleTraffic(100, 50, 8), steps=4)
    meter.add(None, RoleTraffic(10_000, 10_000, 10_000), steps=100)
    meter.add(RoleTraffic(200, 100, 10), RoleTraffic(300, 160, 22), steps=6)
    assert meter.describe() == {
        "pull_bytes_per_step": 20.0,
        "push_bytes_per_step": 10.0,
        "packets_per_step": 2.0,
    }
