"""Every metric once, as data: docs/metrics.md and the Prometheus client's objects are made from it.

catalogue.json has the metrics by the process that exports them: all, the coordinator while such a
job runs, or a service by itself. docs/how-to-add/metric.md shows how to add one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as PrometheusMetric
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
    state: str = ""
    """Place of its value in the state of a run."""
    figure: str = ""
    """Figure of an evaluation that it shows by split."""

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

Stored = TypeVar("Stored", Counter, Gauge, Histogram)


def stored(kind: type[Stored], short: str, registry: CollectorRegistry) -> Stored:
    """Return `pscluster_{short}`, of this kind, as an object that stores its values."""
    entry = metric(short)
    options: dict[str, Any] = {"buckets": entry.buckets} if entry.buckets else {}
    return kind(entry.name, entry.help, entry.label_names, registry=registry, **options)


class Identity(NamedTuple):
    """Which task of the cluster a process is: the values of the labels of every metric."""

    role: str
    task: int


class Reading(NamedTuple):
    """The value of `pscluster_{short}` now.

    `labels` are the values of its further labels; `of` is another task than the one that exports.
    """

    short: str
    value: float
    labels: tuple[object, ...] = ()
    of: Identity | None = None


class ReadingsCollector(Collector):
    """Exports at each scrape what these functions read then."""

    def __init__(self, identity: Identity, *sources: Callable[[], Iterable[Reading]]) -> None:
        """`identity`: the task that exports."""
        self._identity = identity
        self._sources = sources

    def collect(self) -> Iterator[PrometheusMetric]:
        """Yield one family for each metric with values."""
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for short, value, labels, of in chain.from_iterable(read() for read in self._sources):
            if short not in families:
                entry = metric(short)
                kind = CounterMetricFamily if entry.kind == "counter" else GaugeMetricFamily
                families[short] = kind(entry.name, entry.help, labels=entry.label_names)
            families[short].add_metric(list(map(str, (*(of or self._identity), *labels))), value)
        yield from families.values()
