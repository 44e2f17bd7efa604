"""The coordinator's own /metrics, from the start of a job until its last figures were read.

What it exports about a job shows the state of the run (`core/status`): that of any job, of a
training, of the Monte Carlo job. Only sums since this process began are its own.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from cluster.jobs.run_status import Now
from core.control.actions import Actions, Answer
from core.engine.membership import Membership, Phase
from core.inventory import Task
from core.metrics.catalogue import Identity, KeptCounters, counter, family, histogram, metric
from core.metrics.exporter import Exporter, serve
from core.metrics.process import Cost
from core.metrics.standard import register
from core.server.sockets import port_refusal
from core.status import events
from core.status.events import Consumer, Event, EventStream
from core.status.parts import FIGURE_KEYS, MOST_OTHERS, PARTS
from core.status.records import Pace, Training
from core.status.state import ENDED as OVER
from core.status.state import RunState

log = logging.getLogger(__name__)

STAGES = metric("job_stage").labels["stage"]
PREPARING = STAGES[0]
ENDED = STAGES[-1]
SELF = Identity("coordinator", 0)
OURS = tuple(SELF.values)


class JobMetrics(Collector):
    """What every job has. Nothing is computed before a scrape."""

    def __init__(
        self,
        registry: CollectorRegistry,
        now: Now,
        membership: Callable[[], Membership | None] = lambda: None,
    ) -> None:
        """`membership()`: the workers, once there are any."""
        self._now = now
        self._membership = membership
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the state of the run, as it is now."""
        state, seconds = self._now()
        if state.run:
            training = state.training
            mode, model = ("", "") if training is None else (training.mode, training.model)
            yield SELF.sample("job_info", 1, state.job, state.run, mode, model)
        stages = family("job_stage")
        present = _stage(state)
        for name in STAGES:
            stages.add_metric([*OURS, name], float(name == present))
        yield stages
        pace = Pace() if state.progress is None else state.progress.pace
        yield SELF.sample("job_progress_ratio", pace.ratio())
        remaining = pace.remaining_seconds(seconds)
        if remaining is not None and present != ENDED:
            yield SELF.sample("job_remaining_seconds", remaining)
        membership = self._membership()
        if membership is not None:
            yield SELF.sample("queue_items", membership.open_items)
            yield from _workers(membership)
        speeds = family("calibration_samples_per_second")
        for task, speed in state.speeds.items():
            speeds.add_metric(task.split(":"), speed)
        yield speeds


def _stage(state: RunState) -> str:
    """Return the label of the present stage: words for a person are a preparation."""
    if state.state in OVER:
        return ENDED
    if state.progress is None or state.progress.name not in STAGES:
        return PREPARING
    return state.progress.name


def _workers(membership: Membership) -> Iterator[Metric]:
    state = family("worker_state")
    departures = family("worker_departures_total")
    for task, worker in membership.workers.items():
        present = worker.phase
        for phase in Phase:
            state.add_metric(["worker", str(task), phase.value], float(phase is present))
        departures.add_metric(["worker", str(task)], worker.departures)
    yield state
    yield departures


_OF_TRAINING: Mapping[str, Callable[[Training], float | None]] = {
    "train_epoch": lambda training: training.count.epoch,
    "train_planned_epochs": lambda training: training.count.planned_epochs,
    "train_learning_rate_ratio": lambda training: training.count.learning_rate,
    "train_loss_finite": lambda training: training.latest.finite,
    "train_latest_loss": lambda training: training.latest.loss,
    "train_windows_per_second": lambda training: training.latest.windows_per_second,
    "train_remaining_seconds": lambda training: training.latest.seconds_left,
    "train_checkpoint_bytes": lambda training: training.latest.checkpoint_bytes,
}
"""Figures of a training once its epochs are planned; a figure that is None is left out."""
_OF_SPLIT = {
    "train_loss": "loss",
    "train_accuracy_ratio": "accuracy",
    "train_f1_macro_ratio": "f1_macro",
}
"""The figure that each shows, by split."""


class TrainingMetrics(Collector):
    """Progress of a training run: the state of the run, and sums since this process began.

    A coordinator that resumes sets no counter back: Prometheus would take all of it for new.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        now: Now,
        pull_codec: str,
        push_codec: str,
        checkpoint_every_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`now()`: what the gauges show. `clock()`: seconds of the Unix epoch."""
        self._now = now
        self._clock = clock
        self._written: float | None = None
        """Time at which the latest checkpoint was on disk."""
        self._codecs = (("pull", pull_codec), ("push", push_codec))
        self._steps = counter("train_steps_total", registry)
        self._windows = counter("train_windows_total", registry)
        self._step_seconds = histogram("train_step_seconds", registry)
        self._round_trip = histogram("train_round_trip_seconds", registry)
        self._staleness = histogram("train_staleness_updates", registry)
        self._checkpoint_seconds = histogram("train_checkpoint_seconds", registry)
        self._interval = checkpoint_every_seconds
        self._workers: dict[
            int, tuple[Counter, Counter, Histogram, Histogram, Mapping[str, Histogram]]
        ] = {}
        """Series of each worker, looked up once: a step comes every few milliseconds."""
        self._names: set[str] = set()
        """The first names of figures that only this task or app has: no others are exported."""
        self._dropped_before: int | None = None
        """Duplicates of the coordinators before this one."""
        self._counted = KeptCounters()
        registry.register(self._counted)
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges, as they are now."""
        yield SELF.sample("train_checkpoint_interval_seconds", self._interval)
        if self._written is not None:
            yield SELF.sample("train_checkpoint_last_success_timestamp_seconds", self._written)
        state, _ = self._now()
        training = state.training
        if training is None:
            return
        if training.count.planned_epochs:
            for short, value_of in _OF_TRAINING.items():
                value = value_of(training)
                if value is not None:
                    yield SELF.sample(short, value)
        yield from self._figures(state.figures())

    def _figures(self, figures_of: Mapping[str, Mapping[str, float]]) -> Iterator[Metric]:
        for short, figure in _OF_SPLIT.items():
            gauge = family(short)
            for split, figures in figures_of.items():
                if figure in figures:
                    gauge.add_metric([*OURS, split], figures[figure])
            yield gauge
        custom_metrics = family("train_metric")
        for split, figures in figures_of.items():
            for name, value in figures.items():
                if name in FIGURE_KEYS:
                    continue
                if len(self._names) < MOST_OTHERS:
                    self._names.add(name)
                if name in self._names:
                    custom_metrics.add_metric([*OURS, split, name], value)
        yield custom_metrics

    def consume(self, event: Event) -> None:
        """Add what the event counts."""
        match event:
            case events.Stepped():
                self._step(event)
            case events.UpdatesCounted():
                self._totals(event)
            case events.TrafficCounted(sent, received):
                # What a parameter server sends is what others pull.
                for codec, carried in zip(self._codecs, (sent, received), strict=True):
                    self._counted.add("train_wire_bytes_total", carried, *OURS, *codec)
            case events.CheckpointWritten(seconds):
                self._checkpoint_seconds.labels(*OURS).observe(seconds)
                self._written = self._clock()

    def _step(self, step: events.Stepped) -> None:
        if step.task not in self._workers:
            labels = ("worker", str(step.task))
            self._workers[step.task] = (
                self._steps.labels(*labels),
                self._windows.labels(*labels),
                self._staleness.labels(*labels),
                self._round_trip.labels(*labels),
                {part: self._step_seconds.labels(*labels, part) for part in PARTS},
            )
        steps, windows, staleness, round_trip, seconds_of_part = self._workers[step.task]
        steps.inc()
        windows.inc(step.windows)
        staleness.observe(step.staleness)
        round_trip.observe(step.round_trip_seconds)
        for part, value in step.part_seconds.items():
            seconds_of_part[part].observe(value)

    def _totals(self, totals: events.UpdatesCounted) -> None:
        if self._dropped_before is None:
            self._dropped_before = totals.duplicates_dropped
        for short, value in {
            "train_updates_applied_total": totals.applied + totals.rolled_back,
            "train_duplicates_dropped_total": totals.duplicates_dropped - self._dropped_before,
            "train_updates_rolled_back_total": totals.rolled_back,
            "train_resumptions_total": totals.resumptions,
        }.items():
            self._counted.set(short, value, *OURS)


class PiMetrics(Collector):
    """Progress of the Monte Carlo job."""

    def __init__(self, registry: CollectorRegistry, now: Now) -> None:
        self._now = now
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the estimate and the samples behind it, as they are now."""
        state, _ = self._now()
        yield SELF.sample("pi_planned_samples", state.planned_samples or 0)
        samples = family("pi_samples_total")
        for task, role in state.roles.items():
            if role.windows:
                samples.add_metric(task.split(":"), role.windows)
        yield samples
        latest = state.estimates.latest
        if latest is not None:
            yield SELF.sample("pi_estimate_ratio", latest.estimate)
            yield SELF.sample("pi_standard_error_ratio", latest.standard_error)


class CoordinatorMetrics(AbstractContextManager["CoordinatorMetrics"]):
    """A job's registry, and its exporter once the job has its cluster."""

    def __init__(
        self,
        shared: str | None = None,
        busy: Callable[[str], AbstractContextManager[object]] = nullcontext,
        *,
        muted: bool = False,
    ) -> None:
        """`shared`: the folder that all nodes share.

        `busy` shows a person what the job waits for. `serve` of a `muted` one opens no port.
        """
        self._shared = shared
        self._busy = busy
        self.registry = CollectorRegistry()
        self.cost = Cost(SELF)
        self.membership: Membership | None = None
        """The workers, from the moment at which they may join. Any thread may look at it."""
        self._muted = muted
        self._stack = ExitStack()
        self._exporter: Exporter | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def metered(self, *consumers: Consumer) -> Consumer:
        """Return a consumer that hands every event to these.

        What they compute counts as cost of the metrics.
        """
        stream = EventStream(*consumers)

        def consume(event: Event) -> None:
            begin = time.thread_time()
            stream.emit(event)
            self.cost.add(time.thread_time() - begin)

        return consume

    def serve(self, coordinator: Task, drain: Callable[[str, float], Answer] | None = None) -> None:
        """Answer until `close`. Raises ClusterError if the port is taken."""
        if self._muted:
            return
        with ExitStack() as stack:
            # All figures first: a client that reads at once gets every one of them.
            meter = register(
                self.registry,
                SELF,
                metrics_port=coordinator.metrics_port,
                server="client",
                ready=lambda: True,
                cost=self.cost,
                shared=self._shared,
            )
            stack.callback(meter.close)
            try:
                exporter = serve(
                    self.registry,
                    coordinator.host,
                    coordinator.metrics_port,
                    lambda: True,
                    actions=Actions(drain),
                    cost=self.cost,
                )
            except OSError as problem:
                raise port_refusal(
                    problem, coordinator.host, coordinator.metrics_port, "the coordinator's metrics"
                ) from None
            stack.callback(exporter.close)
            self._stack = stack.pop_all()
            self._exporter = exporter

    @contextmanager
    def until_read(self, stop: Callable[[], bool]) -> Iterator[None]:
        """Wait after the body until a scraper has read the last figures, unless `stop()`.

        Then close. Otherwise the figures of the last seconds, and that a training diverged, would
        never reach a Prometheus.
        """
        with self:
            try:
                yield
            except Exception:
                self._linger(stop)
                raise
            self._linger(stop)

    def close(self) -> None:
        """Stop answering and free the port."""
        self._stack.close()

    def _linger(self, stop: Callable[[], bool]) -> None:
        if self._exporter is not None and self._exporter.scrapes.watched:
            log.info("the last metrics wait to be read")
            with self._busy("waiting until the last metrics are read"):
                read = self._exporter.scrapes.linger(stop)
            log.info("the last metrics were %s", "read" if read else "not read")
