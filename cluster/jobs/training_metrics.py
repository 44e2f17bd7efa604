"""What the coordinator exports about a training: its own metrics, and those of each worker's steps."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from cluster.jobs.figures import Figures
from cluster.jobs.observer import EpochReport, Observer, Update, WorkedStep
from cluster.jobs.wire import Traffic
from cluster.metrics import instruments
from cluster.metrics.catalogue import PARTS
from cluster.metrics.instruments import Counted
from ps_node.shard import Totals

OURS = ("coordinator", "0")


@dataclass(frozen=True)
class _OfWorker:
    """One worker's series, looked up once: a step comes every few milliseconds."""

    steps: Counter
    windows: Counter
    staleness: Histogram
    round_trip: Histogram
    parts: Mapping[str, Histogram]


class TrainingMetrics(Observer):
    """Progress of a training run."""

    def __init__(
        self, registry: CollectorRegistry, pull_codec: str, push_codec: str, checkpoint_every_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """`clock`: seconds of the Unix epoch."""
        self._codecs, self._clock = (("pull", pull_codec), ("push", push_codec)), clock

        def gauge(short: str) -> Gauge:
            return instruments.gauge(short, registry)

        self._steps = instruments.counter("train_steps_total", registry)
        self._windows = instruments.counter("train_windows_total", registry)
        self._step_seconds = instruments.histogram("train_step_seconds", registry)
        self._round_trip = instruments.histogram("train_round_trip_seconds", registry)
        self._staleness = instruments.histogram("train_staleness_updates", registry)
        self._checkpoint_seconds = instruments.histogram("train_checkpoint_seconds", registry)
        self._checkpoint_bytes = gauge("train_checkpoint_bytes")
        self._checkpoint_time = gauge("train_checkpoint_last_success_timestamp_seconds")
        gauge("train_checkpoint_interval_seconds").labels(*OURS).set(checkpoint_every_seconds)
        self._rate = gauge("train_windows_per_second")
        self._loss = gauge("train_loss")
        self._accuracy = gauge("train_accuracy_ratio")
        self._f1 = gauge("train_f1_macro_ratio")
        self._latest_loss = gauge("train_latest_loss")
        self._finite = gauge("train_loss_finite")
        self._epoch = gauge("train_epoch")
        self._planned = gauge("train_planned_epochs")
        self._learning_rate = gauge("train_learning_rate_ratio")
        self._left = gauge("train_remaining_seconds")
        self._workers: dict[int, _OfWorker] = {}
        self._dropped_before: int | None = None
        """Duplicates of the coordinators before this one."""
        self._counted = Counted()
        registry.register(self._counted)

    def planned(self, epochs: int, epochs_done: int, rate: float) -> None:
        """See Observer."""
        self._planned.labels(*OURS).set(epochs)
        self._epoch.labels(*OURS).set(epochs_done)
        self._learning_rate.labels(*OURS).set(rate)
        self._finite.labels(*OURS).set(1)

    def step(self, step: WorkedStep) -> None:
        """See Observer."""
        of_worker = self._workers.get(step.task) or self._of_worker(step.task)
        of_worker.steps.inc()
        of_worker.windows.inc(step.windows)
        of_worker.staleness.observe(step.staleness)
        of_worker.round_trip.observe(step.seconds)
        for part, value in step.part_seconds.items():
            of_worker.parts[part].observe(value)

    def update(self, update: Update) -> None:
        """See Observer."""
        self._rate.labels(*OURS).set(update.windows_per_second)
        self._learning_rate.labels(*OURS).set(update.rate)
        self._latest_loss.labels(*OURS).set(update.loss)

    def epoch(self, stage: str, report: EpochReport) -> None:
        """See Observer."""
        self._epoch.labels(*OURS).set(report.epoch)
        self._rate.labels(*OURS).set(report.windows_per_second)
        self._left.labels(*OURS).set(report.seconds_left)
        self._figures("train", report.loss, report.accuracy)

    def figures(
        self, split: str, figures: Figures, labels: Sequence[str], confusion: NDArray[np.int64], epoch: int | None
    ) -> None:
        """See Observer."""
        self._figures(split, figures.loss, figures.accuracy, figures.f1_macro)

    def totals(self, totals: Totals, rolled_back: int, resumptions: int) -> None:
        """See Observer."""
        # A coordinator that goes on from a checkpoint sets no counter back: Prometheus would take all of it for new.
        if self._dropped_before is None:
            self._dropped_before = totals.duplicates_dropped
        self._counted.set("train_updates_applied_total", totals.applied + rolled_back, *OURS)
        dropped = totals.duplicates_dropped - self._dropped_before
        self._counted.set("train_duplicates_dropped_total", dropped, *OURS)
        self._counted.set("train_updates_rolled_back_total", rolled_back, *OURS)
        self._counted.set("train_resumptions_total", resumptions, *OURS)

    def traffic(self, traffic: Traffic, steps: int) -> None:
        """See Observer. What a parameter server sends is what others pull."""
        for codec, carried in zip(self._codecs, (traffic.sent, traffic.received), strict=True):
            self._counted.add("train_wire_bytes_total", carried, *OURS, *codec)

    def checkpoint(self, seconds: float, size_bytes: int, next_update: int) -> None:
        """See Observer."""
        self._checkpoint_seconds.labels(*OURS).observe(seconds)
        self._checkpoint_bytes.labels(*OURS).set(size_bytes)
        self._checkpoint_time.labels(*OURS).set(self._clock())

    def diverged(self, reason: str) -> None:
        """See Observer."""
        self._finite.labels(*OURS).set(0)

    def _of_worker(self, task: int) -> _OfWorker:
        labels = ("worker", str(task))
        self._workers[task] = _OfWorker(
            self._steps.labels(*labels),
            self._windows.labels(*labels),
            self._staleness.labels(*labels),
            self._round_trip.labels(*labels),
            {part: self._step_seconds.labels(*labels, part) for part in PARTS},
        )
        return self._workers[task]

    def _figures(self, split: str, loss: float, accuracy: float, f1_macro: float | None = None) -> None:
        self._loss.labels(*OURS, split).set(loss)
        self._accuracy.labels(*OURS, split).set(accuracy)
        if f1_macro is not None:
            self._f1.labels(*OURS, split).set(f1_macro)
