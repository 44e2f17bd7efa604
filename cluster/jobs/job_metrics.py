"""The coordinator's own /metrics, from the start of a job until its last figures were read.

What it exports about a job shows the state of the run (`core/status`). Only sums since this process
began are its own.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import starmap
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram

from cluster.jobs.run_status import Now
from core.control.actions import Actions, Answer
from core.control.role_restart import is_replaced
from core.engine.membership import Membership, Phase
from core.ground.ports import port_refusal
from core.ground.waiting import until
from core.inventory import Task
from core.metrics.catalogue import CATALOGUE, Identity, Reading, ReadingsCollector, metric, stored
from core.metrics.exporter import Exporter, serve
from core.metrics.process import Cost
from core.metrics.standard import register
from core.status import events
from core.status.events import Consumer, Event, EventStream
from core.status.parts import FIGURE_KEYS, MOST_OTHERS, PARTS
from core.status.state import ENDED as OVER
from core.status.state import RunState

log = logging.getLogger(__name__)

STAGES = metric("job_stage").labels["stage"]
PREPARING = STAGES[0]
ENDED = STAGES[-1]
SELF = Identity("coordinator", 0)
NEW_PROCESS_SECONDS = 45.0
"""systemd waits up to 30 s before it starts a role again (`RestartMaxDelaySec`)."""
NEW_PROCESS_LOOK_SECONDS = 0.25
MOST_HISTOGRAMS = 32
"""Workers with histograms of their own, 8 KB each; a reader takes 1 MiB (`core.control.client`)."""
OTHERS = "others"
"""Label `task` of the histograms that all further workers share."""


class JobMetrics:
    """What every job has, as the state of the run has it. Nothing is computed before a scrape."""

    def __init__(
        self,
        registry: CollectorRegistry,
        now: Now,
        membership: Callable[[], Membership | None] = lambda: None,
    ) -> None:
        """`membership()`: the workers, once there are any."""
        self._now = now
        self._membership = membership
        self._names: list[str] = []
        """The names of figures that only this task or app has: the first are exported."""
        registry.register(ReadingsCollector(SELF, self.read))

    def read(self) -> Iterator[Reading]:
        """Yield the state of the run, as it is now."""
        state, seconds = self._now()
        yield from _of_state(state)
        if state.run:
            training = state.training
            mode, model = ("", "") if training is None else (training.mode, training.model)
            yield Reading("job_info", 1, (state.job, state.run, mode, model))
        present = _stage(state)
        for name in STAGES:
            yield Reading("job_stage", name == present, (name,))
        yield Reading("job_progress_ratio", state.progress.ratio())
        remaining = state.progress.remaining_seconds(seconds)
        if remaining is not None and present != ENDED:
            yield Reading("job_remaining_seconds", remaining)
        membership = self._membership()
        if membership is not None:
            yield from _of_workers(membership)
        for task, speed in state.speeds.items():
            yield Reading("calibration_samples_per_second", speed, of=_identity(task))
        if state.planned_samples is not None:
            for task, role in state.roles.items():
                if role.windows:
                    yield Reading("pi_samples_total", role.windows, of=_identity(task))
        if state.sweep is not None:
            for name, count in state.sweep.counts.items():
                yield Reading("sweep_runs", count, (name,))
        if state.training is not None:
            yield from self._of_evaluations(state.figures())

    def _of_evaluations(self, figures_of: Mapping[str, Mapping[str, float]]) -> Iterator[Reading]:
        for split, figures in figures_of.items():
            for entry in CATALOGUE:
                if entry.figure in figures:
                    yield Reading(entry.short, figures[entry.figure], (split,))
            app_figures = [name for name in figures if name not in FIGURE_KEYS]
            self._names = list(dict.fromkeys([*self._names, *app_figures]))[:MOST_OTHERS]
            for name in app_figures:
                if name in self._names:
                    yield Reading("train_metric", figures[name], (split, name))


def _of_state(state: RunState) -> Iterator[Reading]:
    """Yield the figures whose place in the state the catalogue names, and that it has."""
    for entry in CATALOGUE:
        if entry.state:
            value: Any = state
            for name in entry.state.split("."):
                is_table = isinstance(value, Mapping)
                if is_table:
                    value = value.get(name)
                else:
                    value = getattr(value, name, None)
            if value is not None:
                yield Reading(entry.short, value)


def _identity(task: str) -> Identity:
    role, _, index = task.partition(":")
    return Identity(role, int(index))


def _stage(state: RunState) -> str:
    """Return the label of the present stage: words for a person are a preparation."""
    if state.state in OVER:
        return ENDED
    name = state.progress.name
    if name in STAGES:
        return name
    return PREPARING


def _of_workers(membership: Membership) -> Iterator[Reading]:
    yield Reading("queue_items", membership.open_items)
    for task, worker in membership.workers.items():
        present = worker.phase
        of = Identity("worker", task)
        for phase in Phase:
            yield Reading("worker_state", phase is present, (phase.value,), of)
        yield Reading("worker_departures_total", worker.departures, of=of)


class TrainingMetrics:
    """What a training sums up since this process began."""

    def __init__(
        self,
        registry: CollectorRegistry,
        codecs: Mapping[str, str],
        checkpoint_every_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`codecs`: of pull and push. `clock()`: seconds of the Unix epoch."""
        self._clock = clock
        self._written: float | None = None
        """Time at which the latest checkpoint was on disk."""
        self._wire = dict.fromkeys(codecs.items(), 0)
        """Bytes by direction and codec."""
        self._steps = stored(Counter, "train_steps_total", registry)
        self._windows = stored(Counter, "train_windows_total", registry)
        self._step_seconds = stored(Histogram, "train_step_seconds", registry)
        self._busy = stored(Counter, "train_busy_seconds_total", registry)
        self._round_trip = stored(Histogram, "train_round_trip_seconds", registry)
        self._staleness = stored(Histogram, "train_staleness_updates", registry)
        checkpoints = stored(Histogram, "train_checkpoint_seconds", registry)
        self._checkpoint_seconds = checkpoints.labels(*SELF)
        self._interval = checkpoint_every_seconds
        self._workers: dict[int, _WorkerSeries] = {}
        """Looked up once: a step comes every few milliseconds."""
        registry.register(ReadingsCollector(SELF, self.read))

    def read(self) -> Iterator[Reading]:
        """Yield what no object of the client stores."""
        yield Reading("train_checkpoint_interval_seconds", self._interval)
        if self._written is not None:
            yield Reading("train_checkpoint_last_success_timestamp_seconds", self._written)
        for labels, carried in self._wire.items():
            yield Reading("train_wire_bytes_total", carried, labels)

    def consume(self, event: Event) -> None:
        """Add what the event counts."""
        match event:
            case events.Stepped():
                self._step(event)
            case events.TrafficCounted(sent, received):
                # What a parameter server sends is what others pull.
                for labels, carried in zip(self._wire, (sent, received), strict=True):
                    self._wire[labels] += carried
            case events.CheckpointWritten(seconds):
                self._checkpoint_seconds.observe(seconds)
                self._written = self._clock()

    def _step(self, step: events.Stepped) -> None:
        if step.task not in self._workers:
            labels = ("worker", str(step.task))
            counters = (
                self._steps.labels(*labels),
                self._windows.labels(*labels),
                self._busy.labels(*labels),
            )
            if len(self._workers) >= MOST_HISTOGRAMS:
                labels = ("worker", OTHERS)
            self._workers[step.task] = _WorkerSeries(
                *counters,
                self._staleness.labels(*labels),
                self._round_trip.labels(*labels),
                {part: self._step_seconds.labels(*labels, part) for part in PARTS},
            )
        series = self._workers[step.task]
        series.steps.inc()
        series.windows.inc(step.windows)
        series.staleness.observe(step.staleness)
        series.busy.inc(step.round_trip_seconds)
        series.round_trip.observe(step.round_trip_seconds)
        for part, value in step.part_seconds.items():
            series.parts[part].observe(value)


class _WorkerSeries(NamedTuple):
    steps: Counter
    windows: Counter
    busy: Counter
    staleness: Histogram
    round_trip: Histogram
    parts: Mapping[str, Histogram]


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
        self.cost = Cost()
        self.membership: Membership | None = None
        """The workers, from the moment at which they may join. Any thread may look at it."""
        self.restarting: dict[str, str] = {}
        """Metrics addresses of roles that restart at the end of the run, and their processes."""
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
        never reach a Prometheus. The next job has to meet the roles that restart: wait for them.
        """
        with self:
            try:
                yield
            except Exception:
                self._linger(stop)
                raise
            self._linger(stop)
            if self.restarting:
                log.info(
                    "roles restart, for the threads that TensorFlow keeps of each job: those with"
                    " metrics at %s",
                    ", ".join(self.restarting),
                )
                with self._busy("waiting for roles that restart"):
                    until(
                        lambda: stop() or all(starmap(is_replaced, self.restarting.items())),
                        NEW_PROCESS_SECONDS,
                        NEW_PROCESS_LOOK_SECONDS,
                    )

    def close(self) -> None:
        """Stop answering and free the port."""
        self._stack.close()

    def _linger(self, stop: Callable[[], bool]) -> None:
        if self._exporter is not None and self._exporter.scrapes.watched:
            log.info("the last metrics wait to be read")
            with self._busy("waiting until the last metrics are read"):
                read = self._exporter.scrapes.linger(stop)
            log.info("the last metrics were %s", "read" if read else "not read")
