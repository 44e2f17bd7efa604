"""Every metric once, as data: the exporters and docs/metrics.md are made from it.

catalogue.json has the metrics by the process that exports them: all, the coordinator while such a
job runs, or a service by itself. docs/how-to-add/metric.md shows how to add one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

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


def _read(exporter: Exporter, row: Mapping[str, Any]) -> Metric:
    labels = {label: tuple(values) for label, values in row.get("labels", {}).items()}
    listed = {"labels": labels, "buckets": tuple(row.get("buckets", ()))}
    return Metric(**{"exporter": exporter, **row, **listed})


CATALOGUE: tuple[Metric, ...] = tuple(
    _read(exporter, row)
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
