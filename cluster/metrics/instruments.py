"""The Prometheus client's objects, made from the catalogue: no name, help text, label or bucket is written twice."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from cluster.metrics.catalogue import metric

# Further series `_created`, in the text format gauges of their own, that nobody would use.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the one function the client left untyped

Family = GaugeMetricFamily | CounterMetricFamily


def family(short: str) -> Family:
    """An empty family of `pscluster_{short}`, for a collector; it takes values in the order of `Metric.label_names`."""
    entry = metric(short)
    if entry.kind == "counter":
        return CounterMetricFamily(entry.name, entry.help, labels=entry.label_names)
    return GaugeMetricFamily(entry.name, entry.help, labels=entry.label_names)


def gauge(short: str, registry: CollectorRegistry) -> Gauge:
    """A gauge that keeps its values itself."""
    entry = metric(short)
    return Gauge(entry.name, entry.help, entry.label_names, registry=registry)


def counter(short: str, registry: CollectorRegistry) -> Counter:
    """A counter that keeps its values itself."""
    entry = metric(short)
    return Counter(entry.name, entry.help, entry.label_names, registry=registry)


def histogram(short: str, registry: CollectorRegistry) -> Histogram:
    """A histogram with the entry's buckets."""
    entry = metric(short)
    return Histogram(entry.name, entry.help, entry.label_names, buckets=entry.buckets, registry=registry)
