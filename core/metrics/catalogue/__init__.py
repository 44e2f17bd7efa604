"""Every metric once, as data: the exporters and docs/metrics.md are made from it.

docs/how-to-add/metric.md shows how to add one.
"""

from core.metrics.catalogue.entry import PREFIX, Exporter, Metric
from core.metrics.catalogue.jobs import EVERY_JOB, PI, PROGRAM, SWEEP, TRAINING
from core.metrics.catalogue.processes import EVERY_PROCESS
from core.metrics.catalogue.service import SERVICE

CATALOGUE: tuple[Metric, ...] = (
    *EVERY_PROCESS,
    *EVERY_JOB,
    *TRAINING,
    *PI,
    *PROGRAM,
    *SWEEP,
    *SERVICE,
)

_BY_NAME = {entry.name: entry for entry in CATALOGUE}


def metric(short: str) -> Metric:
    """The entry of `pscluster_{short}`. Raises KeyError for an unknown name."""
    return _BY_NAME[PREFIX + short]


def exported_by(*exporters: Exporter) -> tuple[Metric, ...]:
    """The metrics of these exporters, in the catalogue's order."""
    return tuple(entry for entry in CATALOGUE if entry.exporter in exporters)
