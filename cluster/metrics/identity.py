"""The labels every metric of a process carries."""

from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

PREFIX = "pscluster_"
LABELS = ("role", "task")


@dataclass(frozen=True)
class Identity:
    """Which task of the cluster a process is; makes labelled samples for collectors."""

    role: str
    task: int

    @property
    def values(self) -> list[str]:
        """Label values in the order of LABELS."""
        return [self.role, str(self.task)]

    def gauge(self, name: str, documentation: str, value: float) -> GaugeMetricFamily:
        """One labelled gauge sample named `pscluster_{name}`."""
        family = GaugeMetricFamily(PREFIX + name, documentation, labels=LABELS)
        family.add_metric(self.values, value)
        return family

    def counter(self, name: str, documentation: str, value: float) -> CounterMetricFamily:
        """One labelled counter sample named `pscluster_{name}_total`."""
        family = CounterMetricFamily(PREFIX + name, documentation, labels=LABELS)
        family.add_metric(self.values, value)
        return family
