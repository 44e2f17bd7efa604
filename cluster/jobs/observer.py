"""What a job tells whoever watches it: metrics, the run's status. Each watcher takes what it needs."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.engine.membership import Membership
from cluster.jobs.figures import Figures
from cluster.jobs.wire import Traffic
from ps_node.shard import Totals

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpochReport:
    """What one epoch came to; `validation` is None where nothing was held out."""

    epoch: int
    loss: float
    accuracy: float
    rate: float
    windows_per_second: float
    seconds_left: float
    validation: Figures | None


@dataclass(frozen=True)
class WorkedStep:
    """One reply of one worker.

    `staleness` is in updates. `part_seconds`: pull, compute, push, and wait, which is what is left of `seconds`, the
    time from the dispatch to the reply.
    """

    task: int
    windows: int
    staleness: float
    seconds: float
    part_seconds: Mapping[str, float]


@dataclass(frozen=True)
class Update:
    """One update is complete: `done` of `total` of its fit, with the mean loss of its batches."""

    id: int
    done: int
    total: int
    loss: float
    rate: float
    windows_per_second: float
    """Over the present stretch."""


class Observer:
    """A watcher that ignores everything. Called by the job's own thread; what it does must be short."""

    def opened(self, run: str, job: str) -> None:
        """The job has its folder; `run` is that folder's name, the run's id everywhere."""

    def stage(self, name: str, total: int = 0, unit: str = "") -> None:
        """A stage of `total` units begins: `train`, `refit`, `test`, `pi`, or words for a person."""

    def validating(self, begins: bool) -> None:
        """The stage waits while the model is evaluated on held-out people (True), and goes on after it (False)."""

    def advanced(self, done: int) -> None:
        """So many units of the stage are done."""

    def membership(self, membership: Membership) -> None:
        """The workers can be looked at from now on, by any thread."""

    def cut(self, micro_batches: int) -> None:
        """The training's batches are cut into so many micro-batches."""

    def planned(self, epochs: int, epochs_done: int, rate: float) -> None:
        """A fit begins, or goes on."""

    def step(self, step: WorkedStep) -> None:
        """One worker has computed a step, or its part of one."""

    def evaluated(self, task: int, windows: int, seconds: float) -> None:
        """One worker has evaluated so many windows, in a job that does nothing else."""

    def update(self, update: Update) -> None:
        """One update is complete."""

    def epoch(self, stage: str, report: EpochReport) -> None:
        """One epoch is finished."""

    def figures(
        self, split: str, figures: Figures, labels: Sequence[str], confusion: NDArray[np.int64], epoch: int | None
    ) -> None:
        """The model was evaluated on `split`, validation or test. `confusion`: (classes, classes), rows the truth."""

    def totals(self, totals: Totals, rolled_back: int, resumptions: int) -> None:
        """Updates applied and dropped, in the whole surviving history; told before the first one, too."""

    def traffic(self, traffic: Traffic, steps: int) -> None:
        """What the parameter servers sent and received over the latest stretch of so many steps."""

    def checkpoint(self, seconds: float, size_bytes: int, next_update: int) -> None:
        """A checkpoint was written."""

    def diverged(self, reason: str) -> None:
        """The loss or a gradient is not finite, or far above that of guessing: the job ends."""

    def fault(self, fault: str, target: str) -> None:
        """`--chaos` injects this fault. Called by any thread."""

    def calibration(self, samples_per_second: Mapping[str, float]) -> None:
        """Speeds by task, `worker:3`, as the pi job measured them."""

    def ended(self, state: str, reason: str | None) -> None:
        """The job is over and its result written: `state` is done, cancelled or failed, with the reason."""

    def pi(self, task: int, samples: int, seconds: float, inside: int, drawn: int) -> None:
        """A worker drew `samples` points in `seconds`; `inside` and `drawn` are those of the whole job so far."""


class Observers(Observer):
    """Tells several. One that fails is told nothing more."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = list(observers)

    def add(self, observer: Observer) -> None:
        """One more, from now on."""
        self._observers.append(observer)


def _told(name: str) -> object:
    def tell(self: Observers, *values: object, **named: object) -> None:
        for observer in tuple(self._observers):
            try:
                getattr(observer, name)(*values, **named)
            except Exception:
                # Who watches must not end what is watched.
                log.warning("%s is told nothing more: it failed", type(observer).__name__, exc_info=True)
                self._observers.remove(observer)

    tell.__name__ = name
    return tell


for _name in [name for name in vars(Observer) if not name.startswith("_")]:
    setattr(Observers, _name, _told(_name))
