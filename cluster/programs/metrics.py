"""The metrics of a person's program on the coordinator's /metrics."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from cluster.jobs.job_metrics import OURS
from cluster.programs.process import Usage
from core.metrics.catalogue import family


class ProgramMetrics(Collector):
    """What the processes of a person's program use. Nothing is computed before a scrape."""

    def __init__(
        self, registry: CollectorRegistry, uses: Callable[[], Mapping[str, Usage]]
    ) -> None:
        """`uses()`: what each member (`chief`, `worker:1`) uses, as it was looked at last."""
        self._uses = uses
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield three figures of each member."""
        uses = self._uses()
        for short, value_of in _OF_PROGRAM.items():
            metric = family(short)
            for member, used in uses.items():
                metric.add_metric([*OURS, member], value_of(used))
            yield metric


_OF_PROGRAM: Mapping[str, Callable[[Usage], float]] = {
    "program_cpu_seconds_total": lambda used: used.cpu_seconds,
    "program_resident_bytes": lambda used: used.memory_bytes,
    "program_processes": lambda used: used.processes,
}
