"""The Prometheus client's objects, made from the catalogue.

No name, help text, label or bucket stands twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from core.metrics.catalogue import metric

# The `_created` series would be unused gauges in the text format.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the one function the client left untyped

Family = GaugeMetricFamily | CounterMetricFamily


def family(short: str) -> Family:
    """Return an empty family of `pscluster_{short}`, for a collector.

    It takes values in the order of `Metric.label_names`.
    """
    entry = metric(short)
    kind = CounterMetricFamily if entry.kind == "counter" else GaugeMetricFamily
    return kind(entry.name, entry.help, labels=entry.label_names)


def gauge(short: str, registry: CollectorRegistry) -> Gauge:
    """A gauge that stores its values."""
    entry = metric(short)
    return Gauge(entry.name, entry.help, entry.label_names, registry=registry)


def counter(short: str, registry: CollectorRegistry) -> Counter:
    """A counter that stores its values."""
    entry = metric(short)
    return Counter(entry.name, entry.help, entry.label_names, registry=registry)


def histogram(short: str, registry: CollectorRegistry) -> Histogram:
    """A histogram with the entry's buckets."""
    entry = metric(short)
    return Histogram(
        entry.name, entry.help, entry.label_names, buckets=entry.buckets, registry=registry
    )


@dataclass(frozen=True)
class Identity:
    """Which task of the cluster a process is.

    It makes samples of the catalogue's metrics for collectors.
    """

    role: str
    task: int

    @property
    def values(self) -> list[str]:
        """Values of the labels `role` and `task`."""
        return [self.role, str(self.task)]

    def sample(self, short: str, value: float, *labels: str) -> Family:
        """Return `pscluster_{short}` with this one value.

        `labels` are the values of its further labels.
        """
        metric_family = family(short)
        metric_family.add_metric([*self.values, *labels], value)
        return metric_family


class KeptCounters(Collector):
    """Counters whose values another component keeps, by metric and labels.

    Labels are in the order of `Metric.label_names`.
    """

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[str, ...], float]] = {}

    def set(self, short: str, value: float, *labels: str) -> None:
        """Set `pscluster_{short}` to this value."""
        self._values[short] = {**self._values.get(short, {}), labels: value}

    def add(self, short: str, value: float, *labels: str) -> None:
        """Add to `pscluster_{short}`."""
        self.set(short, self._values.get(short, {}).get(labels, 0.0) + value, *labels)

    def collect(self) -> Iterator[Metric]:
        """Yield one family for each metric with values."""
        for short, values in list(self._values.items()):
            metric_family = family(short)
            for labels, value in values.items():
                metric_family.add_metric(labels, value)
            yield metric_family
