"""What the coordinator exports about the Monte Carlo job."""

from prometheus_client import CollectorRegistry

from cluster.jobs.observer import Observer
from cluster.jobs.pi_estimate import estimate_of
from cluster.metrics.instruments import counter, gauge

OURS = ("coordinator", "0")


class PiMetrics(Observer):
    """Its progress."""

    def __init__(self, registry: CollectorRegistry, planned: int) -> None:
        self._samples = counter("pi_samples_total", registry)
        gauge("pi_planned_samples", registry).labels(*OURS).set(planned)
        self._estimate = gauge("pi_estimate_ratio", registry)
        self._error = gauge("pi_standard_error_ratio", registry)

    def pi(self, task: int, samples: int, seconds: float, inside: int, drawn: int) -> None:
        """See Observer."""
        self._samples.labels("worker", str(task)).inc(samples)
        estimate, error = estimate_of(inside, drawn)
        self._estimate.labels(*OURS).set(estimate)
        self._error.labels(*OURS).set(error)
