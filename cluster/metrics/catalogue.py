"""Every metric once, as data: what is exported is made from it, and so is docs/metrics.md.

A new metric is one entry in `process_entries` or `job_entries` and one place that sets it.
"""

from cluster.metrics.job_entries import JOBS
from cluster.metrics.metric import PREFIX, Exporter, Metric
from cluster.metrics.process_entries import PROCESS

CATALOGUE: tuple[Metric, ...] = (*PROCESS, *JOBS)

_BY_NAME = {entry.name: entry for entry in CATALOGUE}


def metric(short: str) -> Metric:
    """The entry of `pscluster_{short}`. Raises KeyError if there is none."""
    return _BY_NAME[PREFIX + short]


def exported_by(*exporters: Exporter) -> tuple[Metric, ...]:
    """The metrics that these export together."""
    return tuple(entry for entry in CATALOGUE if entry.exporter in exporters)
