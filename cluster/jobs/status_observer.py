"""What a job tells becomes the state of its run, which any thread may look at."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from cluster.engine.membership import Membership, Worker
from cluster.inventory import Inventory
from cluster.jobs.figures import Figures
from cluster.jobs.observer import EpochReport, Observer, Update, WorkedStep
from cluster.jobs.pi_estimate import estimate_of
from cluster.jobs.wire import Traffic
from cluster.status.roles import UP, Seen
from cluster.status.spans import WORKING
from cluster.status.state import RunState
from cluster.status.training import Training
from cluster.status.view import ConfusionView, EpochView, NodeView, PiPoint, RoleView, RunView
from ps_node.shard import Totals

COORDINATOR = "coordinator:0"


class RunClock:
    """Seconds since a run began, which a change of the machine's clock does not move."""

    def __init__(self, started: datetime | None = None, at_least: float = 0.0) -> None:
        """`started`: when an earlier coordinator began, of which `at_least` so many seconds are known."""
        now = datetime.now(UTC)
        self.started = started or now
        self._began = time.monotonic() - max(at_least, (now - self.started).total_seconds())

    def __call__(self) -> float:
        """So many now."""
        return time.monotonic() - self._began


def fresh_state(inventory: Inventory, job: str, started: datetime) -> RunState:
    """Of a run of which nothing is known but what the inventory says."""
    train = inventory.jobs.train
    nodes = [
        NodeView(
            node.name,
            inventory.hosts.get(node.name, node.name),
            tuple(RoleView(task.name, "unknown") for task in inventory.tasks() if task.node == node.name),
        )
        for node in inventory.nodes
    ]
    training = Training(train.mode, train.model.name) if job == "train" else None
    state = RunState(
        inventory.cluster, job, nodes, started, training, inventory.jobs.pi.samples if job == "pi" else None
    )
    state.roles[COORDINATOR].state = UP
    return state


class StatusObserver(Observer):
    """Feeds a RunState. Its calls hold the lock for microseconds."""

    def __init__(self, inventory: Inventory, job: str) -> None:
        self.clock = RunClock()
        self._state = fresh_state(inventory, job, self.clock.started)
        self._lock = threading.Lock()
        self._alone = job == "train" and not inventory.jobs.train.facts.needs_roles()
        self._micro_batches = 1
        self._workers: Mapping[int, Worker] = {}
        self._pi_began: float | None = None
        self.urgent: Callable[[], None] = lambda: None
        """Called when what was told should be kept at once: this process may be about to die."""

    @contextmanager
    def state(self) -> Iterator[RunState]:
        """The state, for a moment."""
        with self._lock:
            yield self._state

    def replace(self, state: RunState, clock: RunClock) -> None:
        """Another state from now on: that of a run which goes on."""
        with self._lock:
            self._state, self.clock = state, clock

    def view(self) -> RunView:
        """The picture now."""
        with self._lock:
            return self._state.view(self.clock())

    def look(self) -> None:
        """See how the workers are, and that time has passed."""
        seen = {f"worker:{task}": self._seen(worker) for task, worker in self._workers.items()}
        now = self.clock()
        with self._lock:
            if seen:
                self._state.saw(seen, now)
            elif self._alone and self._state.run:
                self._state.span(COORDINATOR, WORKING, now)
                self._state.live = 1
            self._state.tick(now)

    def _seen(self, worker: Worker) -> Seen:
        item = worker.item
        return Seen(worker.phase.value, worker.departures, None if item is None else self._work(item.function, item.id))

    def _work(self, function: str, item: int) -> str:
        if function == "train":
            return f"update {item}"
        if function.startswith("train_"):  # a part of a step: see modes/synchronous.py
            return f"update {item // self._micro_batches}"
        return {"evaluate": "evaluation", "pi": f"chunk {item}", "settle": "last update"}.get(function, function)

    def tell(self, kind: str, text: str) -> None:
        """A line of the event log."""
        now = self.clock()
        with self._lock:
            self._state.tell(kind, text, now)

    # What the job tells.

    def stage(self, name: str, total: int = 0, unit: str = "") -> None:
        """See Observer."""
        now = self.clock()
        if name == "pi":
            self._pi_began = now
        with self._lock:
            self._state.stage(name, total, unit, now)

    def validating(self, begins: bool) -> None:
        """See Observer."""
        with self._lock:
            self._state.validating(begins)

    def advanced(self, done: int) -> None:
        """See Observer."""
        now = self.clock()
        with self._lock:
            self._state.advanced(done, now)

    def membership(self, membership: Membership) -> None:
        """See Observer."""
        self._workers = membership.workers

    def cut(self, micro_batches: int) -> None:
        """See Observer."""
        self._micro_batches = micro_batches

    def planned(self, epochs: int, epochs_done: int, rate: float) -> None:
        """See Observer."""
        with self._lock:
            if (training := self._state.training) is not None:
                training.planned_epochs, training.epoch, training.learning_rate = epochs, epochs_done, rate

    def step(self, step: WorkedStep) -> None:
        """See Observer."""
        task = COORDINATOR if self._alone else f"worker:{step.task}"
        with self._lock:
            self._state.step(task, step.windows, step.staleness, step.seconds, step.part_seconds)

    def evaluated(self, task: int, windows: int, seconds: float) -> None:
        """See Observer."""
        with self._lock:
            self._state.worked(f"worker:{task}", windows, seconds)

    def update(self, update: Update) -> None:
        """See Observer."""
        with self._lock:
            self._state.update(update.loss, update.rate)

    def epoch(self, stage: str, report: EpochReport) -> None:
        """See Observer."""
        found = report.validation
        epoch = EpochView(
            stage, report.epoch, report.loss, report.accuracy, report.rate, report.windows_per_second, self.clock(),
            found.loss if found else None, found.accuracy if found else None, found.f1_macro if found else None,
        )  # fmt: skip
        with self._lock:
            self._state.epoch(epoch)

    def figures(
        self, split: str, figures: Figures, labels: Sequence[str], confusion: NDArray[np.int64], epoch: int | None
    ) -> None:
        """See Observer."""
        rows = tuple(tuple(int(count) for count in row) for row in confusion)
        with self._lock:
            self._state.evaluated(ConfusionView(split, tuple(labels), rows, epoch), asdict(figures))

    def totals(self, totals: Totals, rolled_back: int, resumptions: int) -> None:
        """See Observer."""
        with self._lock:
            if (training := self._state.training) is not None:
                training.updates_applied, training.duplicates_dropped = totals.applied, totals.duplicates_dropped
                training.rolled_back, training.resumptions = rolled_back, resumptions

    def traffic(self, traffic: Traffic, steps: int) -> None:
        """See Observer."""
        with self._lock:
            if (training := self._state.training) is not None:
                training.pulled_bytes += traffic.sent
                training.pushed_bytes += traffic.received
                training.counted_steps += steps

    def checkpoint(self, seconds: float, size_bytes: int, next_update: int) -> None:
        """See Observer."""
        now = self.clock()
        with self._lock:
            if self._state.training is not None:
                self._state.training.checkpoints += 1
            text = f"checkpoint of {next_update:,} updates, {size_bytes / 1e6:.1f} MB in {seconds:.2f} s"
            self._state.tell("checkpoint", text, now)

    def diverged(self, reason: str) -> None:
        """See Observer."""
        self.tell("warning", f"diverged: {reason}")

    def fault(self, fault: str, target: str) -> None:
        """See Observer."""
        self.tell("fault", f"{fault} on {target}")
        self.urgent()

    def calibration(self, samples_per_second: Mapping[str, float]) -> None:
        """See Observer."""
        fastest = max(samples_per_second.values(), default=0.0)
        self.tell("stage", f"calibrated {len(samples_per_second)} workers, up to {fastest / 1e6:.1f} M samples/s")

    def pi(self, task: int, samples: int, seconds: float, inside: int, drawn: int) -> None:
        """See Observer."""
        estimate, error = estimate_of(inside, drawn)
        now = self.clock()
        point = PiPoint(drawn, now - (now if self._pi_began is None else self._pi_began), estimate, error)
        with self._lock:
            self._state.drew(f"worker:{task}", samples, seconds, point)
