"""What the catalogue says about one metric."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PREFIX = "pscluster_"
LABELS = ("role", "task")
"""Labels of every metric."""

Kind = Literal["gauge", "counter", "histogram"]
Exporter = Literal["every process", "every job", "training", "pi"]
"""Who exports it: parameter servers, workers and the coordinator, or the coordinator while such a job runs."""

UNITS = ("seconds", "bytes", "celsius", "ratio")
"""Base units, as names end in (before `_total`); a metric that ends in none counts things."""


@dataclass(frozen=True)
class Metric:
    """One metric. `short` is its name without the prefix that all have."""

    short: str
    kind: Kind
    exporter: Exporter
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """Labels beside `role` and `task`, with all values they can have; none where those are facts of the run."""
    subject: Literal["itself", "worker"] = "itself"
    """Whom `role` and `task` name: the process that exports it, or the worker that the coordinator speaks of."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without the infinite one."""
    where: str = ""
    """Where or when it is there, if not always."""

    @property
    def name(self) -> str:
        """The name as Prometheus knows it, e.g. `pscluster_train_steps_total`; of a histogram without `_bucket`."""
        return PREFIX + self.short

    @property
    def family(self) -> str:
        """The name as the Python client has it: that of a counter without `_total`."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name

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
