"""One metric, as data: its name, kind, labels and meaning."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PREFIX = "pscluster_"
LABELS = ("role", "task")
"""Labels of every metric."""

Kind = Literal["gauge", "counter", "histogram"]
Exporter = Literal["every process", "every job", "training", "pi", "program", "sweep", "service"]
"""Which process exports it: all of them, the coordinator while such a job runs, or a service by
itself."""

UNITS = ("seconds", "bytes", "celsius", "ratio")
"""Base units. A name ends in one (before `_total`); a metric whose name ends in none counts things.
"""


@dataclass(frozen=True)
class Metric:
    """One metric. `short` is its name without the prefix that all have."""

    short: str
    kind: Kind
    exporter: Exporter
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """Labels beside `role` and `task`, with all values they can have; empty where the values are
    facts of the run."""
    subject: Literal["itself", "worker"] = "itself"
    """What `role` and `task` name: the process that exports it, or a worker that the coordinator
    reports on."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without the infinite one."""
    where: str = ""
    """Where or when it exists, if not always."""

    @property
    def name(self) -> str:
        """The name as Prometheus knows it, e.g. `pscluster_train_steps_total`.

        A histogram's is without `_bucket`.
        """
        return PREFIX + self.short

    @property
    def family(self) -> str:
        """The name as the Python client has it: that of a counter without `_total`."""
        if self.kind == "counter":
            return self.name.removesuffix("_total")
        return self.name

    @property
    def series(self) -> tuple[str, ...]:
        """The names that expressions use."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)

    @property
    def label_names(self) -> tuple[str, ...]:
        """All labels in the order in which values are given."""
        return (*LABELS, *self.labels)

    @property
    def unit(self) -> str:
        """The base unit in its name, or nothing."""
        words = self.short.removesuffix("_total").removesuffix("_per_second").split("_")
        return next((unit for unit in UNITS if words[-1] == unit), "")
