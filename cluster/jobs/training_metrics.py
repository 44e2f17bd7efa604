"""What the coordinator exports about a job: its own metrics, labelled by `role` and `task`."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.engine.membership import Membership, Phase, Worker
from cluster.jobs.figures import Figures
from cluster.jobs.observer import EpochReport, Observer, Update, WorkedStep
from cluster.jobs.pi_estimate import estimate_of

ROLE = ("role", "task")
STALENESS_BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64)
STEP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class WorkerStates(Collector):
    """State of each worker as it is when somebody asks, one-hot over the phases of membership."""

    def __init__(self, workers: Mapping[int, Worker]) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        """`pscluster_worker_state` and `pscluster_worker_departures_total` of every worker."""
        state = GaugeMetricFamily(
            "pscluster_worker_state", "1 for the phase the worker is in, 0 for all others", labels=(*ROLE, "state")
        )
        left = CounterMetricFamily("pscluster_worker_departures", "Times the worker left the cluster", labels=ROLE)
        for task, worker in self._workers.items():
            present = worker.phase
            for phase in Phase:
                state.add_metric(("worker", str(task), phase.value), float(phase is present))
            left.add_metric(("worker", str(task)), worker.departures)
        yield state
        yield left


class TrainingMetrics(Observer):
    """Progress of a training run."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"pscluster_train_{name}", text, (*ROLE, *labels), registry=registry)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"pscluster_train_{name}", text, ROLE, registry=registry)

        self.steps = counter("steps", "Updates this worker has computed")
        self.windows = counter("windows", "Windows this worker has trained on")
        self.step_seconds = Histogram(
            "pscluster_train_step_seconds", "Time of one step on the worker, by part", (*ROLE, "part"),
            buckets=STEP_BUCKETS, registry=registry,
        )  # fmt: skip
        self.staleness = Histogram(
            "pscluster_train_staleness_updates", "Updates applied between a worker's pull and its push", ROLE,
            buckets=STALENESS_BUCKETS, registry=registry,
        )  # fmt: skip
        self._rate = gauge("windows_per_second", "Windows trained on per second, over the present epoch")
        self._loss = gauge("loss", "Mean loss of the latest epoch", "split")
        self._accuracy = gauge("accuracy_ratio", "Accuracy after the latest epoch", "split")
        self._f1 = gauge("f1_macro_ratio", "Macro F1 after the latest epoch", "split")
        self._epoch = gauge("epoch", "Epochs finished")
        self._planned = gauge("planned_epochs", "Epochs planned")
        self._learning_rate = gauge("learning_rate_ratio", "Learning rate of the latest update")
        self._left = gauge("remaining_seconds", "Estimated time to the end of training")

    def membership(self, membership: Membership) -> None:
        """See Observer."""
        self._registry.register(WorkerStates(membership.workers))

    def planned(self, epochs: int, epochs_done: int, rate: float) -> None:
        """See Observer."""
        ours = ("coordinator", "0")
        self._planned.labels(*ours).set(epochs)
        self._epoch.labels(*ours).set(epochs_done)
        self._learning_rate.labels(*ours).set(rate)

    def step(self, step: WorkedStep) -> None:
        """See Observer."""
        labels = ("worker", str(step.task))
        self.steps.labels(*labels).inc()
        self.windows.labels(*labels).inc(step.windows)
        self.staleness.labels(*labels).observe(step.staleness)
        for part, value in step.part_seconds.items():
            self.step_seconds.labels(*labels, part).observe(value)

    def update(self, update: Update) -> None:
        """See Observer."""
        ours = ("coordinator", "0")
        self._rate.labels(*ours).set(update.windows_per_second)
        self._learning_rate.labels(*ours).set(update.rate)

    def epoch(self, stage: str, report: EpochReport) -> None:
        """See Observer."""
        ours = ("coordinator", "0")
        self._epoch.labels(*ours).set(report.epoch)
        self._rate.labels(*ours).set(report.windows_per_second)
        self._left.labels(*ours).set(report.seconds_left)
        self._figures("train", report.loss, report.accuracy)

    def figures(
        self, split: str, figures: Figures, labels: Sequence[str], confusion: NDArray[np.int64], epoch: int | None
    ) -> None:
        """See Observer."""
        self._figures(split, figures.loss, figures.accuracy, figures.f1_macro)

    def _figures(self, split: str, loss: float, accuracy: float, f1_macro: float | None = None) -> None:
        labels = ("coordinator", "0", split)
        self._loss.labels(*labels).set(loss)
        self._accuracy.labels(*labels).set(accuracy)
        if f1_macro is not None:
            self._f1.labels(*labels).set(f1_macro)


class PiMetrics(Observer):
    """Progress of the Monte Carlo job."""

    def __init__(self, registry: CollectorRegistry, planned: int) -> None:
        self._registry = registry
        self.samples = Counter("pscluster_pi_samples", "Random points this worker has drawn", ROLE, registry=registry)
        planned_samples = Gauge(
            "pscluster_pi_planned_samples", "Random points of the whole job", ROLE, registry=registry
        )
        planned_samples.labels("coordinator", "0").set(planned)
        self._estimate = Gauge("pscluster_pi_estimate_ratio", "Estimate of pi so far", ROLE, registry=registry)
        self._error = Gauge("pscluster_pi_standard_error_ratio", "Standard error so far", ROLE, registry=registry)

    def membership(self, membership: Membership) -> None:
        """See Observer."""
        self._registry.register(WorkerStates(membership.workers))

    def pi(self, task: int, samples: int, seconds: float, inside: int, drawn: int) -> None:
        """See Observer."""
        self.samples.labels("worker", str(task)).inc(samples)
        estimate, error = estimate_of(inside, drawn)
        self._estimate.labels("coordinator", "0").set(estimate)
        self._error.labels("coordinator", "0").set(error)
