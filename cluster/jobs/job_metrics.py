"""What the coordinator exports about any job: which, how far it is, and its workers."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from cluster.engine.membership import Membership, Phase
from cluster.jobs.observer import Observer
from cluster.metrics.catalogue import STAGES
from cluster.metrics.instruments import Identity, family

PREPARING, ENDED, VALIDATION = STAGES[0], STAGES[-1], "validation"


@dataclass(frozen=True)
class Stage:
    """How far a stage is. Its speed is measured from its first report on: a run that goes on begins in the middle."""

    name: str
    total: int = 0
    done: int = 0
    first_done: int | None = None
    first_time: float = 0.0

    def advanced(self, done: int, now: float) -> "Stage":
        """So many units are done."""
        if self.first_done is None:
            return replace(self, done=done, first_done=done, first_time=now)
        return replace(self, done=done)

    @property
    def ratio(self) -> float:
        """Share that is done."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    def remaining_seconds(self, now: float) -> float | None:
        """At the mean speed so far; None before there is one."""
        if self.first_done is None or self.done <= self.first_done or now <= self.first_time:
            return None
        return (self.total - self.done) * (now - self.first_time) / (self.done - self.first_done)


class JobMetrics(Observer, Collector):
    """Of every job. Nothing is computed before somebody asks."""

    def __init__(
        self, registry: CollectorRegistry, mode: str = "", model: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._identity = Identity("coordinator", 0)
        self._mode, self._model, self._clock = mode, model, clock
        self._run: tuple[str, str] | None = None
        self._stage, self._validating = Stage(PREPARING), False
        self._membership: Membership | None = None
        self._speeds: Mapping[str, float] = {}
        registry.register(self)

    def opened(self, run: str, job: str) -> None:
        """See Observer."""
        self._run = (job, run)

    def stage(self, name: str, total: int = 0, unit: str = "") -> None:
        """See Observer."""
        self._stage, self._validating = Stage(name if name in STAGES else PREPARING, total), False

    def validating(self, begins: bool) -> None:
        """See Observer."""
        self._validating = begins

    def advanced(self, done: int) -> None:
        """See Observer."""
        self._stage = self._stage.advanced(done, self._clock())

    def membership(self, membership: Membership) -> None:
        """See Observer."""
        self._membership = membership

    def calibration(self, samples_per_second: Mapping[str, float]) -> None:
        """See Observer."""
        self._speeds = dict(samples_per_second)

    def ended(self, state: str, reason: str | None) -> None:
        """See Observer."""
        self._stage, self._validating = replace(self._stage, name=ENDED, first_done=None), False

    def collect(self) -> Iterator[Metric]:
        """All of it, as it is now."""
        gauge, stage = self._identity.gauge, self._stage
        if self._run is not None:
            yield self._identity.info("job_info", *self._run, self._mode, self._model)
        stages, present = family("job_stage"), VALIDATION if self._validating else stage.name
        for name in STAGES:
            stages.add_metric([*self._identity.values, name], float(name == present))
        yield stages
        yield gauge("job_progress_ratio", stage.ratio)
        remaining = stage.remaining_seconds(self._clock())
        if remaining is not None:
            yield gauge("job_remaining_seconds", remaining)
        if self._membership is not None:
            yield gauge("queue_items", self._membership.open_items)
            yield from _workers(self._membership)
        speeds = family("calibration_samples_per_second")
        for task, speed in self._speeds.items():
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
