"""The state behind a RunView: what happened, applied one by one. No clock, no lock, no file.

`seconds` are those since the run began. What has to survive this process goes into `records` (see `records.py`), which
whoever writes the history takes from there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from cluster.status.events import EventLog, iso
from cluster.status.roles import LOST, UNKNOWN, UP, Role, Seen
from cluster.status.samples import Estimates, Samples, mean
from cluster.status.spans import AWAY, STATES, Spans
from cluster.status.training import Training
from cluster.status.view import (
    ConfusionView,
    EpochView,
    JobState,
    NodeView,
    PiPoint,
    PiView,
    ProgressView,
    RunView,
    SampleView,
    SpanView,
)

MOST_RECORDS = 20_000
"""Records nobody took: the history is broken, and what it misses comes whole once it is not."""
ENDED = ("done", "cancelled", "failed")
VALIDATION = "validation"


class RunState:
    """One run so far."""

    def __init__(
        self, cluster: str, job: str, nodes: Sequence[NodeView], started: datetime,
        training: Training | None = None, planned_samples: int | None = None,
    ) -> None:  # fmt: skip
        """`nodes`: with roles of which nothing is known yet. `planned_samples`: of the pi job."""
        self.cluster, self.job, self.started = cluster, job, started
        self.run = ""
        self.nodes = tuple(replace(node, roles=()) for node in nodes)
        self.roles = {role.task: Role(role.task) for node in nodes for role in node.roles}
        self.places = {role.task: node.name for node in nodes for role in node.roles}
        self.state: JobState = "preparing"
        self.reason: str | None = None
        self.ended_seconds: float | None = None
        self.training, self.planned_samples = training, planned_samples
        self.progress: ProgressView | None = None
        self.samples, self.estimates = Samples(), Estimates()
        self.spans, self.log = Spans(), EventLog()
        self.confusion: ConfusionView | None = None
        self.figures: dict[str, dict[str, float]] = {}
        self.records: list[dict[str, Any]] = []
        self._stage_began: tuple[float, int] | None = None
        self._waiting_stage = ""
        self._losses: list[float] = [0.0, 0.0]
        self._staleness: list[float] = [0.0, 0.0]
        """Sum and count since the latest sample."""
        self._sampled: float | None = None
        """When the latest sample was taken, or the first work came."""
        self.live = 0

    def record(self, name: str, /, **facts: Any) -> None:
        """Something that has to last."""
        if len(self.records) < MOST_RECORDS:
            self.records.append({"record": name, **facts})

    def tell(self, kind: str, text: str, seconds: float) -> None:
        """A line of the event log."""
        event = self.log.tell(kind, text, seconds, self.started + timedelta(seconds=seconds))
        if event is not None:
            self.record("event", **asdict(event))

    # What the job tells.

    def stage(self, name: str, total: int, unit: str, seconds: float) -> None:
        """A stage begins."""
        self.progress = ProgressView(name, 0, total, unit)
        self._stage_began = None
        self.tell("stage", f"{name}: {total:,} {unit}" if total else name, seconds)

    def validating(self, begins: bool) -> None:
        """The stage waits for an evaluation on held-out people, or goes on after it: what is done of it stays."""
        if self.progress is not None:
            if begins:
                self._waiting_stage = self.progress.stage
            self.progress = replace(self.progress, stage=VALIDATION if begins else self._waiting_stage)

    def advanced(self, done: int, seconds: float) -> None:
        """So many units of the stage are done."""
        if self.progress is not None:
            self.progress = replace(self.progress, done=done)
            if self._stage_began is None:
                self._stage_began = (seconds, done)

    def worked(self, task: str, windows: int, taken: float) -> None:
        """A role has gone through so many windows."""
        role = self.roles.get(task)
        if role is not None:
            role.windows += windows
            role.step_seconds.append(taken)

    def step(self, task: str, windows: int, staleness: float, taken: float, parts: Mapping[str, float]) -> None:
        """One worker has computed a step."""
        self.worked(task, windows, taken)
        self._staleness[0] += staleness
        self._staleness[1] += 1
        if self.training is not None:
            self.training.parts.append(parts)
            self.training.staleness.add(staleness)

    def update(self, loss: float, rate: float) -> None:
        """One update is complete."""
        if isfinite(loss):
            self._losses[0] += loss
            self._losses[1] += 1
        if self.training is not None:
            self.training.learning_rate = rate

    def epoch(self, epoch: EpochView) -> None:
        """One epoch is finished."""
        if self.training is not None:
            self.training.add_epoch(epoch)
        self.figures["train"] = {"loss": epoch.loss, "accuracy": epoch.accuracy}
        self.record("epoch", **asdict(epoch))
        shown = "" if epoch.validation_accuracy is None else f", validation accuracy {epoch.validation_accuracy:.4f}"
        self.tell("stage", f"{epoch.stage}: epoch {epoch.epoch}, loss {epoch.loss:.4f}{shown}", epoch.seconds)

    def evaluated(self, confusion: ConfusionView, figures: Mapping[str, float]) -> None:
        """The model was evaluated on a split."""
        self.confusion, self.figures[confusion.split] = confusion, dict(figures)
        self.record("figures", split=confusion.split, confusion=asdict(confusion), figures=dict(figures))

    def drew(self, task: str, samples: int, taken: float, point: PiPoint) -> None:
        """A worker drew points for pi."""
        self.worked(task, samples, taken)
        if self.estimates.add(point):
            self.record("pi", **asdict(point))

    # What is seen of the roles.

    def saw(self, workers: Mapping[str, Seen], seconds: float) -> None:
        """The workers are like that now."""
        for task, seen in workers.items():
            role = self.roles.get(task)
            if role is None:
                continue
            for kind, line in role.saw(seen):
                self.tell(kind, line, seconds)
            self.span(task, STATES.get(seen.phase, AWAY), seconds)
        self.live = sum(STATES.get(seen.phase, AWAY) != AWAY for seen in workers.values())

    def span(self, task: str, state: str, seconds: float) -> None:
        """The task is in this state of the timeline."""
        ended = self.spans.state(task, state, seconds)
        if ended is not None:
            self.record("span", **asdict(ended))

    def answered(self, task: str, memory_bytes: int | None, sent: float | None, received: float | None) -> None:
        """What a role process says of itself; a worker's state is what membership says."""
        role = self.roles[task]
        role.memory_bytes = memory_bytes
        role.sent_bytes_per_second, role.received_bytes_per_second = sent, received
        if not task.startswith("worker:"):
            role.state = UP

    def computes_on(self, task: str, processor: str) -> None:
        """The kind of processor that the role's node has."""
        name = self.places[task]
        self.nodes = tuple(replace(node, processor=processor) if node.name == name else node for node in self.nodes)

    def silent(self, task: str) -> None:
        """A role process did not answer."""
        role = self.roles[task]
        role.sent_bytes_per_second = role.received_bytes_per_second = role.memory_bytes = None
        if role.state == UP:
            role.state = LOST

    # Time.

    def tick(self, seconds: float) -> None:
        """Time has passed; to be called about twice a second."""
        for role in self.roles.values():
            role.mark(seconds)
        if self._sampled is None:
            if any(role.windows > role.sampled_windows for role in self.roles.values()):
                self._sampled = seconds  # what came before it took an unknown time
                self._forget_sampled()
            return
        if seconds - self._sampled >= self.samples.interval_seconds:
            self._sample(seconds, seconds - self._sampled)

    def _sample(self, seconds: float, since: float) -> None:
        workers = {
            role.task: (role.windows - role.sampled_windows) / since
            for role in self.roles.values()
            if role.windows or role.task.startswith("worker:")
        }
        loss = self._losses[0] / self._losses[1] if self._losses[1] else None
        staleness = self._staleness[0] / self._staleness[1] if self._staleness[1] else None
        self.add_sample(SampleView(seconds, loss, sum(workers.values()), staleness, workers, self.live))
        self._sampled = seconds
        self._forget_sampled()

    def _forget_sampled(self) -> None:
        for role in self.roles.values():
            role.sampled_windows = role.windows
        self._losses, self._staleness = [0.0, 0.0], [0.0, 0.0]

    def add_sample(self, sample: SampleView) -> None:
        """One more."""
        self.samples.add(sample)
        self.record("sample", **asdict(sample))

    # The run's life.

    def began(self, run: str, seconds: float) -> None:
        """The run has its folder: the work begins."""
        self.run, self.state = run, "running"
        self.tell("run", f"{self.job} begins: run {run}", seconds)

    def resumed(self, last: float, seconds: float) -> None:
        """Another coordinator goes on; of the one before it nothing is known after the second `last`."""
        self.state, self.reason, self.ended_seconds = "running", None, None
        for ended in self.spans.end(last):
            self.record("span", **asdict(ended))
        for role in self.roles.values():
            role.departures_before, role.state, role.work = role.departures, UNKNOWN, None
            role.mean_rate = None
            role.marks.clear()
            role.sampled_windows = role.windows
            if role.task.startswith("worker:"):
                self.spans.open(SpanView(role.task, AWAY, last, None))
        if self.samples.kept:
            for at in (last, seconds):
                self.add_sample(SampleView(at, None, 0.0, None, dict.fromkeys(self.samples.kept[-1].workers, 0.0), 0))
        self._sampled = None
        self.record("resumed", seconds=seconds)
        self.tell(
            "resumed", f"another coordinator goes on, {seconds - last:.0f} s after the last sign of life", seconds
        )

    def end(self, state: JobState, reason: str | None, seconds: float) -> None:
        """The job has ended."""
        self.tell(state, state if reason is None else f"{state}: {reason}", seconds)
        for ended in self.close(state, reason, seconds):
            self.record("span", **asdict(ended))
        self.record("end", state=state, reason=reason, seconds=seconds)

    def close(self, state: JobState, reason: str | None, seconds: float) -> list[SpanView]:
        """Nothing comes after that; the spans that ended with it."""
        self.state, self.reason, self.ended_seconds = state, reason, seconds
        for role in self.roles.values():
            role.mean_rate = mean(
                rate for sample in self.samples.kept if (rate := sample.workers.get(role.task, 0.0)) > 0
            )
            role.work = None
        return self.spans.end(seconds)

    def remaining_seconds(self, seconds: float) -> float | None:
        """Of the present stage, at its pace so far."""
        if self.progress is None or self._stage_began is None or self.state in ENDED:
            return None
        began, before = self._stage_began
        done = self.progress.done - before
        return (seconds - began) / done * max(0, self.progress.total - self.progress.done) if done > 0 else None

    def rate(self) -> float | None:
        """Windows per second of all roles."""
        if self.state in ENDED:
            return mean(sample.windows_per_second for sample in self.samples.kept if sample.windows_per_second > 0)
        known = [rate for role in self.roles.values() if (rate := role.rate()) is not None]
        return sum(known) if known else None

    def view(self, seconds: float) -> RunView:
        """All of it, as it is now."""
        elapsed = seconds if self.ended_seconds is None else self.ended_seconds
        nodes = tuple(
            replace(
                node, roles=tuple(role.view() for role in self.roles.values() if self.places[role.task] == node.name)
            )
            for node in self.nodes
        )
        return RunView(
            cluster=self.cluster, run=self.run, job=self.job, state=self.state, reason=self.reason,
            time=iso(self.started + timedelta(seconds=seconds)), started=iso(self.started),
            elapsed_seconds=elapsed, remaining_seconds=self.remaining_seconds(seconds),
            windows_per_second=self.rate(), progress=self.progress, nodes=nodes,
            samples=tuple(self.samples.kept), spans=self.spans.all(), events=tuple(self.log.kept),
            confusion=self.confusion, figures={split: dict(found) for split, found in self.figures.items()},
            train=self.training.view() if self.training is not None else None,
            pi=PiView(self.planned_samples, self.estimates.points()) if self.planned_samples is not None else None,
        )  # fmt: skip

    def tasks(self) -> Iterable[str]:
        """Names of the role processes."""
        return self.roles.keys()
