"""Counters of what somebody else counts: their values are set, not added up here."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cluster.metrics.instruments import family


class Counted(Collector):
    """Values by metric and labels, in the order of `Metric.label_names`."""

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[str, ...], float]] = {}

    def set(self, short: str, value: float, *labels: str) -> None:
        """The count of `pscluster_{short}` is this now."""
        self._values[short] = {**self._values.get(short, {}), labels: value}

    def add(self, short: str, value: float, *labels: str) -> None:
        """So many more."""
        self.set(short, self._values.get(short, {}).get(labels, 0.0) + value, *labels)

    def collect(self) -> Iterator[Metric]:
        """What was set so far."""
        for short, values in list(self._values.items()):
            made = family(short)
            for labels, value in values.items():
                made.add_metric(labels, value)
            yield made
