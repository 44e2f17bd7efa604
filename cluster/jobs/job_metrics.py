"""The coordinator's own /metrics, from the start of a job until its last figures were read.

What it exports about a job are consumers of the job's events: of any job, of a training, of the Monte Carlo job.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from cluster.control.actions import Actions, Answer
from cluster.engine.membership import Membership, Phase
from cluster.inventory import Task
from cluster.metrics import instruments
from cluster.metrics.catalogue import PARTS, STAGES
from cluster.metrics.exporter import Exporter, serve
from cluster.metrics.instruments import Identity, KeptCounters, family
from cluster.metrics.process import Cost
from cluster.metrics.standard import register
from cluster.programs.process import Usage
from cluster.server.sockets import explain
from cluster.status import events
from cluster.status.events import Consumer, Event
from cluster.status.parts import MOST_OTHERS
from cluster.status.state import Pace
from cluster.status.stream import Stream

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


_GAUGES: Mapping[type, Mapping[str, str]] = {
    events.Updated: {
        "train_windows_per_second": "windows_per_second",
        "train_learning_rate_ratio": "rate",
        "train_latest_loss": "loss",
    },
    events.Planned: {
        "train_planned_epochs": "epochs",
        "train_epoch": "epochs_done",
        "train_learning_rate_ratio": "rate",
    },
    events.EpochEnded: {
        "train_epoch": "epoch",
        "train_windows_per_second": "windows_per_second",
        "train_remaining_seconds": "seconds_left",
    },
    events.CheckpointWritten: {"train_checkpoint_bytes": "size_bytes"},
}
"""For each event, the gauges that show its attributes."""
_OTHER_GAUGES = (
    *("train_loss", "train_accuracy_ratio", "train_f1_macro_ratio", "train_metric", "train_loss_finite"),
    *("train_checkpoint_last_success_timestamp_seconds", "train_checkpoint_interval_seconds"),
)


class TrainingMetrics:
    """Progress of a training run."""

    def __init__(
        self, registry: CollectorRegistry, pull_codec: str, push_codec: str, checkpoint_every_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """`clock`: seconds of the Unix epoch."""
        self._codecs, self._clock = (("pull", pull_codec), ("push", push_codec)), clock
        self._steps = instruments.counter("train_steps_total", registry)
        self._windows = instruments.counter("train_windows_total", registry)
        self._step_seconds = instruments.histogram("train_step_seconds", registry)
        self._round_trip = instruments.histogram("train_round_trip_seconds", registry)
        self._staleness = instruments.histogram("train_staleness_updates", registry)
        self._checkpoint_seconds = instruments.histogram("train_checkpoint_seconds", registry)
        gauges = dict.fromkeys((*_OTHER_GAUGES, *(short for shown in _GAUGES.values() for short in shown)))
        self._gauges = {short: instruments.gauge(short, registry) for short in gauges}
        self._set("train_checkpoint_interval_seconds", checkpoint_every_seconds)
        self._workers: dict[int, tuple[Counter, Counter, Histogram, Histogram, Mapping[str, Histogram]]] = {}
        """Each worker's series, looked up once: a step comes every few milliseconds."""
        self._names: set[str] = set()
        """Of the figures that only this task or app has."""
        self._dropped_before: int | None = None
        """Duplicates of the coordinators before this one."""
        self._counted = KeptCounters()
        registry.register(self._counted)

    def _set(self, short: str, value: float, *labels: str) -> None:
        self._gauges[short].labels(*OURS, *labels).set(value)

    def consume(self, event: Event) -> None:
        """See Stream."""
        for short, attribute in _GAUGES.get(type(event), {}).items():
            self._set(short, getattr(event, attribute))
        match event:
            case events.Stepped():
                self._step(event)
            case events.Planned():
                self._set("train_loss_finite", 1)
            case events.EpochEnded():
                self._figures("train", event.loss, event.accuracy)
            case events.FiguresComputed(split, figures):
                self._figures(split, figures.loss, figures.accuracy)
                if figures.f1_macro is not None:
                    self._set("train_f1_macro_ratio", figures.f1_macro, split)
                self._others(split, figures.others)
            case events.UpdatesCounted():
                self._totals(event)
            case events.TrafficCounted(sent, received):  # what a parameter server sends is what others pull
                for codec, carried in zip(self._codecs, (sent, received), strict=True):
                    self._counted.add("train_wire_bytes_total", carried, *OURS, *codec)
            case events.CheckpointWritten(seconds):
                self._checkpoint_seconds.labels(*OURS).observe(seconds)
                self._set("train_checkpoint_last_success_timestamp_seconds", self._clock())
            case events.Diverged():
                self._set("train_loss_finite", 0)

    def _others(self, split: str, found: Mapping[str, float]) -> None:
        """The first names that ever came are exported. One that comes no more leaves, rather than stand still."""
        for name in found:
            if len(self._names) < MOST_OTHERS:
                self._names.add(name)
        for name in self._names:
            if name in found:
                self._set("train_metric", found[name], split, name)
            else:
                self._gauges["train_metric"].remove(*OURS, split, name)

    def _step(self, step: events.Stepped) -> None:
        if step.task not in self._workers:
            labels = ("worker", str(step.task))
            self._workers[step.task] = (
                self._steps.labels(*labels), self._windows.labels(*labels), self._staleness.labels(*labels),
                self._round_trip.labels(*labels), {part: self._step_seconds.labels(*labels, part) for part in PARTS},
            )  # fmt: skip
        steps, windows, staleness, round_trip, parts = self._workers[step.task]
        steps.inc()
        windows.inc(step.windows)
        staleness.observe(step.staleness)
        round_trip.observe(step.round_trip_seconds)
        for part, value in step.part_seconds.items():
            parts[part].observe(value)

    def _totals(self, totals: events.UpdatesCounted) -> None:
        # A coordinator that resumes from a checkpoint sets no counter back: Prometheus would take all of it for new.
        if self._dropped_before is None:
            self._dropped_before = totals.duplicates_dropped
        for short, value in {
            "train_updates_applied_total": totals.applied + totals.rolled_back,
            "train_duplicates_dropped_total": totals.duplicates_dropped - self._dropped_before,
            "train_updates_rolled_back_total": totals.rolled_back,
            "train_resumptions_total": totals.resumptions,
        }.items():
            self._counted.set(short, value, *OURS)

    def _figures(self, split: str, loss: float, accuracy: float | None) -> None:
        self._set("train_loss", loss, split)
        if accuracy is not None:
            self._set("train_accuracy_ratio", accuracy, split)


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


class SweepMetrics:
    """How the runs of a sweep stand."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._runs = instruments.gauge("sweep_runs", registry)
        self._remaining = instruments.gauge("sweep_remaining_seconds", registry)

    def consume(self, event: Event) -> None:
        """See Stream."""
        if isinstance(event, events.SweepMoved):
            for state, count in event.sweep.counts.items():
                self._runs.labels(*OURS, state).set(count)
            if event.sweep.remaining_seconds is not None:
                self._remaining.labels(*OURS).set(event.sweep.remaining_seconds)


class ProgramMetrics(Collector):
    """What the processes of a person's program use. Nothing is computed before a scrape."""

    def __init__(self, registry: CollectorRegistry, uses: Callable[[], Mapping[str, Usage]]) -> None:
        """`uses()`: what each member (`chief`, `worker:1`) uses, as it was looked at last."""
        self._uses = uses
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Three figures of each member."""
        uses = self._uses()
        for short, value_of in _OF_PROGRAM.items():
            made = family(short)
            for member, used in uses.items():
                made.add_metric([*OURS, member], value_of(used))
            yield made


_OF_PROGRAM: Mapping[str, Callable[[Usage], float]] = {
    "program_cpu_seconds_total": lambda used: used.cpu_seconds,
    "program_resident_bytes": lambda used: used.memory_bytes,
    "program_processes": lambda used: used.processes,
}

log = logging.getLogger(__name__)


class CoordinatorMetrics(AbstractContextManager["CoordinatorMetrics"]):
    """A job's registry, and its exporter once the job has its cluster."""

    def __init__(
        self, shared: str | None = None, busy: Callable[[str], AbstractContextManager[object]] = nullcontext
    ) -> None:  # fmt: skip
        """`shared`: the folder that all nodes share. `busy` shows a person what the job waits for."""
        self._shared, self._busy = shared, busy
        self._identity = Identity("coordinator", 0)
        self.registry = CollectorRegistry()
        self.cost = Cost(self._identity)
        self.membership: Membership | None = None
        """The workers, from the moment at which they may join. Any thread may look at it."""
        self.muted = False
        """Whether `serve` opens no port: of a run of a sweep, of which a node may have several."""
        self._stack = ExitStack()
        self._exporter: Exporter | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def metered(self, *consumers: Consumer) -> Consumer:
        """A consumer that hands every event to these, and counts what they compute as cost of the metrics."""
        stream = Stream(*consumers)

        def consume(event: Event) -> None:
            begin = time.thread_time()
            stream.emit(event)
            self.cost.add(time.thread_time() - begin)

        return consume

    def serve(self, coordinator: Task, drain: Callable[[str, float], Answer] | None = None) -> None:
        """Answer until `close`. Raises ClusterError if the port is taken."""
        if self.muted:
            return
        with ExitStack() as stack:
            try:
                exporter = serve(
                    self.registry, coordinator.host, coordinator.metrics_port, lambda: True,
                    actions=Actions(drain), cost=self.cost,
                )  # fmt: skip
            except OSError as problem:
                raise explain(
                    problem, coordinator.host, coordinator.metrics_port, "the coordinator's metrics"
                ) from None
            stack.callback(exporter.close)
            meter = register(
                self.registry, self._identity, metrics_port=coordinator.metrics_port, server="client",
                ready=lambda: True, cost=self.cost, shared=self._shared,
            )  # fmt: skip
            stack.callback(meter.close)
            self._stack, self._exporter = stack.pop_all(), exporter

    @contextmanager
    def until_read(self, stop: Callable[[], bool]) -> Iterator[None]:
        """After the body, wait until a scraper has read the last figures, unless `stop()`; then close.

        Otherwise the figures of the last seconds, and that a training diverged, would never reach a Prometheus.
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
