"""Every metric once, as data: docs/metrics.md and the Prometheus client's objects are made from it.

catalogue.json has the metrics by the process that exports them: all, the coordinator while such a
job runs, or a service by itself. docs/how-to-add/metric.md shows how to add one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from core.ground.files import read_json

PREFIX = "pscluster_"
LABELS = ("role", "task")
"""Labels of every metric."""

Kind = Literal["gauge", "counter", "histogram"]
Exporter = Literal["every process", "every job", "training", "pi", "program", "sweep", "service"]


@dataclass(frozen=True)
class Metric:
    """One metric. `short` is its name without the prefix that all have.

    A name ends in its base unit, seconds, bytes, celsius or ratio (before `_total`); a metric whose
    name ends in none counts things.
    """

    short: str
    kind: Kind
    exporter: Exporter
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """Labels beside `role` and `task`, with all values they can have; empty where the values are
    facts of the run."""
    subject: Literal["itself", "worker"] = "itself"
    """Process that `role` and `task` name: the exporting one, or a worker that the coordinator
    reports on."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without the infinite one."""
    where: str = ""
    """Condition under which it exists, if not always."""

    @property
    def name(self) -> str:
        """The name as Prometheus knows it, e.g. `pscluster_train_steps_total`.

        A histogram's is without `_bucket`.
        """
        return PREFIX + self.short

    @property
    def label_names(self) -> tuple[str, ...]:
        """Return all labels in the order of their values."""
        return (*LABELS, *self.labels)


def _metric_of_row(exporter: Exporter, row: Mapping[str, Any]) -> Metric:
    labels = {label: tuple(values) for label, values in row.get("labels", {}).items()}
    listed = {"labels": labels, "buckets": tuple(row.get("buckets", ()))}
    return Metric(**{"exporter": exporter, **row, **listed})


CATALOGUE: tuple[Metric, ...] = tuple(
    _metric_of_row(exporter, row)
    for exporter, rows in read_json(Path(__file__).with_suffix(".json")).items()
    for row in rows
)
_BY_SHORT = {entry.short: entry for entry in CATALOGUE}


def metric(short: str) -> Metric:
    """The entry of `pscluster_{short}`. Raises KeyError for an unknown name."""
    return _BY_SHORT[short]


def exported_by(*exporters: Exporter) -> tuple[Metric, ...]:
    """The metrics of these exporters, in the catalogue's order."""
    return tuple(entry for entry in CATALOGUE if entry.exporter in exporters)


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

    def collect(self) -> Iterator[Family]:
        """Yield one family for each metric with values."""
        for short, values in list(self._values.items()):
            metric_family = family(short)
            for labels, value in values.items():
                metric_family.add_metric(labels, value)
            yield metric_family
