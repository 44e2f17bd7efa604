"""Bytes on the wire, as the parameter servers' own sockets count them (TCP_INFO, through their /metrics)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cluster.errors import ClusterError
from cluster.jobs.role_metrics import ANSWER_SECONDS, role_metrics

COUNTERS = (
    ("pscluster_network_transmit_bytes_total",),
    ("pscluster_network_receive_bytes_total",),
    ("pscluster_network_transmit_packets_total", "pscluster_network_receive_packets_total"),
)


@dataclass(frozen=True)
class Traffic:
    """Of one role process or several: bytes sent, bytes received, packets both ways."""

    sent: int
    received: int
    packets: int

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.sent + other.sent, self.received + other.received, self.packets + other.packets)

    def __sub__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.sent - other.sent, self.received - other.received, self.packets - other.packets)


def traffic_of(host: str, metrics_port: int, timeout_seconds: float = ANSWER_SECONDS) -> Traffic:
    """What a role process has sent and received so far. Raises ClusterError if it does not say in time."""
    names = [name for counter in COUNTERS for name in counter]
    samples = {sample.name: sample.value for sample in role_metrics(host, metrics_port, names, timeout_seconds)}
    try:
        return Traffic(*(int(sum(samples[name] for name in names)) for names in COUNTERS))
    except KeyError as problem:
        raise ClusterError(
            f"http://{host}:{metrics_port}/metrics: has no {problem}: expected a role of this version of pscluster: "
            "`fab deploy restart` makes it one"
        ) from None


@dataclass
class WireMeter:
    """Adds up traffic over the stretches in which only training went on."""

    sent: int = 0
    received: int = 0
    packets: int = 0
    steps: int = 0
    read: Callable[[], Traffic | None] = field(default=lambda: None, compare=False)
    """The traffic so far; None where it is unknown."""

    @classmethod
    def of(cls, counted: Mapping[str, int]) -> "WireMeter":
        """One that continues from what was `counted`."""
        return cls(counted["sent"], counted["received"], counted["packets"], counted["steps"])

    def add(self, before: Traffic | None, after: Traffic | None, steps: int) -> Traffic | None:
        """One stretch of `steps` steps between two readings, and what it carried; None if one of them failed."""
        if before is None or after is None:
            return None
        added = after - before
        self.sent += added.sent
        self.received += added.received
        self.packets += added.packets
        self.steps += steps
        return added

    def counted(self) -> dict[str, int]:
        """The sums so far, for a checkpoint."""
        return {"sent": self.sent, "received": self.received, "packets": self.packets, "steps": self.steps}

    def describe(self) -> dict[str, float | None]:
        """The entry of `result.json`: what a parameter server sends is what workers pull."""
        if not self.steps:
            return {"pull_bytes_per_step": None, "push_bytes_per_step": None, "packets_per_step": None}
        return {
            "pull_bytes_per_step": self.sent / self.steps,
            "push_bytes_per_step": self.received / self.steps,
            "packets_per_step": self.packets / self.steps,
        }
