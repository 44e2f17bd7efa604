"""What the coordinator exports about a job, as consumers of its events: any job, a training, the Monte Carlo job."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from cluster.engine.membership import Membership, Phase
from cluster.metrics import instruments
from cluster.metrics.catalogue import PARTS, STAGES
from cluster.metrics.instruments import Counted, Identity, family
from cluster.status import events
from cluster.status.events import Event
from cluster.status.state import Pace

PREPARING, ENDED, VALIDATION = STAGES[0], STAGES[-1], "validation"
OURS = ("coordinator", "0")


class JobMetrics(Collector):
    """Of every job. Nothing is computed before a scrape."""

    def __init__(
        self,
        registry: CollectorRegistry,
        mode: str = "",
        model: str = "",
        membership: Callable[[], Membership | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`membership()`: the workers, once there are any."""
        self._identity = Identity("coordinator", 0)
        self._mode, self._model, self._membership, self._clock = mode, model, membership, clock
        self._run: tuple[str, str] | None = None
        self._stage, self._pace, self._validating = PREPARING, Pace(), False
        self.speeds: Mapping[str, float] = {}
        """Samples per second by task, as the latest pi job measured them."""
        registry.register(self)

    def consume(self, event: Event) -> None:
        """See Stream."""
        match event:
            case events.Stepped():
                pass
            case events.Updated(done=done) | events.Advanced(done):
                self._pace = self._pace.advanced(done, self._clock())
            case events.Opened(run, job):
                self._run = (job, run)
            case events.StageBegan(name, total):
                self._stage, self._pace = name if name in STAGES else PREPARING, Pace(total)
                self._validating = False
            case events.Validating(begins):
                self._validating = begins
            case events.Calibrated(speeds):
                self.speeds = dict(speeds)
            case events.Ended():
                self._stage, self._validating = ENDED, False
                self._pace = Pace(self._pace.total, self._pace.done)

    def collect(self) -> Iterator[Metric]:
        """All of it, as it is now."""
        sample, pace = self._identity.sample, self._pace
        if self._run is not None:
            yield sample("job_info", 1, *self._run, self._mode, self._model)
        stages, present = family("job_stage"), VALIDATION if self._validating else self._stage
        for name in STAGES:
            stages.add_metric([*self._identity.values, name], float(name == present))
        yield stages
        yield sample("job_progress_ratio", min(1.0, pace.done / pace.total) if pace.total else 0.0)
        remaining = pace.remaining_seconds(self._clock())
        if remaining is not None:
            yield sample("job_remaining_seconds", remaining)
        membership = self._membership()
        if membership is not None:
            yield sample("queue_items", membership.open_items)
            yield from _workers(membership)
        speeds = family("calibration_samples_per_second")
        for task, speed in self.speeds.items():
            speeds.add_metric(task.split(":"), speed)
        yield speeds


def _workers(membership: Membership) -> Iterator[Metric]:
    state, left = family("worker_state"), family("worker_departures_total")
    for task, worker in membership.workers.items():
        present = worker.phase
        for phase in Phase:
            state.add_metric(["worker", str(task), phase.value], float(phase is present))
        left.add_metric(["worker", str(task)], worker.departures)
    yield state
    yield left


@dataclass(frozen=True)
class _OfWorker:
    """One worker's series, looked up once: a step comes every few milliseconds."""

    steps: Counter
    windows: Counter
    staleness: Histogram
    round_trip: Histogram
    parts: Mapping[str, Histogram]


class TrainingMetrics:
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

    def consume(self, event: Event) -> None:
        """See Stream."""
        match event:
            case events.Stepped():
                self._step(event)
            case events.Updated():
                self._rate.labels(*OURS).set(event.windows_per_second)
                self._learning_rate.labels(*OURS).set(event.rate)
                self._latest_loss.labels(*OURS).set(event.loss)
            case events.Planned(epochs, epochs_done, rate):
                self._planned.labels(*OURS).set(epochs)
                self._epoch.labels(*OURS).set(epochs_done)
                self._learning_rate.labels(*OURS).set(rate)
                self._finite.labels(*OURS).set(1)
            case events.EpochEnded():
                self._epoch.labels(*OURS).set(event.epoch)
                self._rate.labels(*OURS).set(event.windows_per_second)
                self._left.labels(*OURS).set(event.seconds_left)
                self._figures("train", event.loss, event.accuracy)
            case events.FiguresComputed(split, figures):
                self._figures(split, figures.loss, figures.accuracy, figures.f1_macro)
            case events.UpdatesCounted():
                self._totals(event)
            case events.TrafficCounted(sent, received):  # what a parameter server sends is what others pull
                for codec, carried in zip(self._codecs, (sent, received), strict=True):
                    self._counted.add("train_wire_bytes_total", carried, *OURS, *codec)
            case events.CheckpointWritten(seconds, size_bytes):
                self._checkpoint_seconds.labels(*OURS).observe(seconds)
                self._checkpoint_bytes.labels(*OURS).set(size_bytes)
                self._checkpoint_time.labels(*OURS).set(self._clock())
            case events.Diverged():
                self._finite.labels(*OURS).set(0)

    def _step(self, step: events.Stepped) -> None:
        of_worker = self._workers.get(step.task) or self._of_worker(step.task)
        of_worker.steps.inc()
        of_worker.windows.inc(step.windows)
        of_worker.staleness.observe(step.staleness)
        of_worker.round_trip.observe(step.round_trip_seconds)
        for part, value in step.part_seconds.items():
            of_worker.parts[part].observe(value)

    def _totals(self, totals: events.UpdatesCounted) -> None:
        # A coordinator that resumes from a checkpoint sets no counter back: Prometheus would take all of it for new.
        if self._dropped_before is None:
            self._dropped_before = totals.duplicates_dropped
        self._counted.set("train_updates_applied_total", totals.applied + totals.rolled_back, *OURS)
        dropped = totals.duplicates_dropped - self._dropped_before
        self._counted.set("train_duplicates_dropped_total", dropped, *OURS)
        self._counted.set("train_updates_rolled_back_total", totals.rolled_back, *OURS)
        self._counted.set("train_resumptions_total", totals.resumptions, *OURS)

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


class PiMetrics:
    """Progress of the Monte Carlo job."""

    def __init__(self, registry: CollectorRegistry, planned: int) -> None:
        self._samples = instruments.counter("pi_samples_total", registry)
        instruments.gauge("pi_planned_samples", registry).labels(*OURS).set(planned)
        self._estimate = instruments.gauge("pi_estimate_ratio", registry)
        self._error = instruments.gauge("pi_standard_error_ratio", registry)

    def consume(self, event: Event) -> None:
        """See Stream."""
        if isinstance(event, events.PointsDrawn):
            self._samples.labels("worker", str(event.task)).inc(event.samples)
            self._estimate.labels(*OURS).set(event.estimate)
            self._error.labels(*OURS).set(event.standard_error)
