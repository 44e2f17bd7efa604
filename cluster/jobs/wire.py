"""Bytes on the wire, as the parameter servers' own sockets count them (TCP_INFO, through their /metrics)."""

import urllib.error
import urllib.request
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from cluster.errors import ClusterError

COUNTERS = (
    ("pscluster_network_transmit_bytes_total",),
    ("pscluster_network_receive_bytes_total",),
    ("pscluster_network_transmit_packets_total", "pscluster_network_receive_packets_total"),
)
ANSWER_SECONDS = 5.0
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def traffic_of(host: str, metrics_port: int) -> tuple[int, int, int]:
    """(bytes sent, bytes received, packets both ways) of a role process so far. Raises ClusterError."""
    address = f"http://{host}:{metrics_port}/metrics"
    try:
        with _NO_PROXY.open(address, timeout=ANSWER_SECONDS) as answer:
            text = answer.read().decode()
    except (OSError, urllib.error.URLError) as problem:
        raise ClusterError(f"{address}: expected the role's metrics, got {problem}: is it still running?") from None
    samples = {
        sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples
    }
    sent, received, packets = (int(sum(samples[name] for name in names)) for names in COUNTERS)
    return sent, received, packets


@dataclass
class WireMeter:
    """Adds up traffic over the stretches in which only training went on."""

    sent: int = 0
    received: int = 0
    packets: int = 0
    steps: int = 0

    def add(self, before: tuple[int, int, int], after: tuple[int, int, int], steps: int) -> None:
        """One stretch of `steps` steps between two readings."""
        self.sent += after[0] - before[0]
        self.received += after[1] - before[1]
        self.packets += after[2] - before[2]
        self.steps += steps

    def describe(self) -> dict[str, float | None]:
        """As it stands in `result.json`: what a parameter server sends is what workers pull."""
        if not self.steps:
            return {"pull_bytes_per_step": None, "push_bytes_per_step": None, "packets_per_step": None}
        return {
            "pull_bytes_per_step": self.sent / self.steps,
            "push_bytes_per_step": self.received / self.steps,
            "packets_per_step": self.packets / self.steps,
        }
