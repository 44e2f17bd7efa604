"""The metrics of a sweep on the coordinator's /metrics."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from cluster.jobs.job_metrics import OURS, SELF
from cluster.jobs.run_status import Now
from core.metrics.catalogue import family


class SweepMetrics(Collector):
    """How the runs of a sweep stand. Nothing is computed before a scrape."""

    def __init__(self, registry: CollectorRegistry, now: Now) -> None:
        self._now = now
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the runs by state, and the time until they are over."""
        state, _ = self._now()
        if state.sweep is None:
            return
        runs = family("sweep_runs")
        for name, count in state.sweep.counts.items():
            runs.add_metric([*OURS, name], count)
        yield runs
        if state.sweep.remaining_seconds is not None:
            yield SELF.sample("sweep_remaining_seconds", state.sweep.remaining_seconds)
