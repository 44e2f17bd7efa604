"""A fit: which windows each of its updates sees at which rate, how far it is, and if it diverges.

An epoch's updates are slices of a seeded permutation. All of the state goes into a checkpoint, from
which a run resumes. A training diverges by where its loss goes: a high loss that falls is learning.
"""

import heapq
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from core.ground.errors import ClusterError, UsageError
from core.inventory.training import TrainJob
from core.inventory.training_sections import Constant, EarlyStopping, OneCycle
from core.models.window_statistics import cosines_and_sines
from core.parameters import Vector
from core.status.parts import Figures, StalenessCount

Rows = NDArray[np.int32]


@dataclass(frozen=True)
class Update:
    """What one update is computed from. `id` counts the updates of the run from 0.

    `batches` are the numbers of its batches, counted over the run as well; `rows` has shape
    (batches, batch_size).
    """

    id: int
    batches: tuple[int, ...]
    rows: Rows


def learning_rate(schedule: OneCycle | Constant, peak: float, update: int, updates: int) -> float:
    """The rate of update number `update` (from 0) of `updates`.

    `one_cycle` is Smith & Topin's (arXiv 1708.07120) as in PyTorch's OneCycleLR with cosine
    annealing: from `peak / initial_divisor` up to `peak` at the end of the warm-up, then down to
    the first rate / `final_divisor`.
    """
    if isinstance(schedule, Constant):
        return peak
    first = peak / schedule.initial_divisor
    last = first / schedule.final_divisor
    top = schedule.warmup_fraction * updates - 1.0
    if update < top:
        return _between(first, peak, update / top)
    remaining = updates - 1 - top
    return _between(peak, last, (update - top) / remaining if remaining > 0 else 1.0)


def _between(start: float, end: float, share: float) -> float:
    cosine, _ = cosines_and_sines(min(max(share, 0.0), 1.0) / 2.0)
    return end + (start - end) / 2.0 * (1.0 + float(cosine))


class Plan:
    """The batches of a whole run, and how they make updates.

    Every epoch is a fresh permutation of `rows`, cut into whole batches; the last few windows that
    fill none wait for another epoch's permutation. `replayed` more batches at the end of each epoch
    repeat those of highest loss. Each update is as many batches one after the other as the mode
    says, the last of an epoch what is left.
    """

    def __init__(self, job: TrainJob, rows: NDArray[np.integer], until: int | None = None) -> None:
        """Plan the epochs of `job`, of which only the first `until` are trained, if it is given.

        Raises UsageError if there are fewer rows than a batch holds.
        """
        self.batch_size = job.batch_size
        if len(rows) < self.batch_size:
            raise UsageError(
                f"jobs.train.batch_size: a batch of {self.batch_size} windows cannot be filled from"
                f" {len(rows)} training windows: set it to at most {len(rows)}"
            )
        self._rows = rows.astype(np.int32)
        self._schedule = job.schedule
        self._peak = job.optimizer.rate_for(job.batch_size)
        self._seed = job.seed
        self._group = job.facts.batches(job.mode_options)
        self.epochs = job.epochs
        if until is not None:
            self.epochs = min(until, job.epochs)
        self._fresh = len(rows) // self.batch_size
        self.replayed = min(job.replay_worst_batches, self._fresh)
        self.batches_per_epoch = self._fresh + self.replayed
        self.batches = job.epochs * self.batches_per_epoch
        """The batches of all epochs: the learning rate's schedule is over these."""
        self.fresh_updates = -(-self._fresh // self._group)
        self.per_epoch = self.fresh_updates + -(-self.replayed // self._group)
        self.updates = self.epochs * self.per_epoch

    def fresh(self, epoch: int) -> list[Update]:
        """The updates of `epoch` (from 0) that see each window once."""
        order = np.random.Generator(np.random.Philox(key=[self._seed, epoch])).permutation(
            len(self._rows)
        )
        order = order[: self._fresh * self.batch_size].reshape(self._fresh, self.batch_size)
        first = epoch * self.batches_per_epoch
        return self._updates(
            epoch * self.per_epoch, range(first, first + self._fresh), self._rows[order]
        )

    def rate(self, batch: int) -> float:
        """Return the learning rate of a batch by its number."""
        return learning_rate(self._schedule, self._peak, batch, self.batches)

    def replay(self, epoch: int, losses: Mapping[int, float]) -> list[Update]:
        """Return updates over the batches of `epoch` with the highest `losses`, newly numbered."""
        worst = heapq.nlargest(self.replayed, losses, key=lambda batch: (losses[batch], -batch))
        rows = {
            batch: rows
            for update in self.fresh(epoch)
            for batch, rows in zip(update.batches, update.rows, strict=True)
        }
        first = epoch * self.batches_per_epoch + self._fresh
        if worst:
            again = np.stack([rows[batch] for batch in worst])
        else:
            again = np.zeros((0, self.batch_size), np.int32)
        numbers = range(first, first + len(worst))
        return self._updates(epoch * self.per_epoch + self.fresh_updates, numbers, again)

    def _updates(self, first: int, batches: range, rows: Rows) -> list[Update]:
        return [
            Update(
                first + place,
                tuple(batches[start : start + self._group]),
                rows[start : start + self._group],
            )
            for place, start in enumerate(range(0, len(rows), self._group))
        ]


def chunks(rows: Rows, size: int) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
    """Yield `rows` in pieces of exactly `size`, the last one filled up, with weights.

    A weight is 1 for each row that counts, else 0.
    """
    for start in range(0, len(rows), size):
        piece = rows[start : start + size]
        weights = np.zeros(size, np.float32)
        weights[: len(piece)] = 1.0
        yield np.resize(piece, size).astype(np.int32), weights


def is_better(candidate: Figures, best: Figures | None, early: EarlyStopping | None) -> bool:
    """Return whether an epoch with `candidate` replaces the selected one, by `min_delta`."""
    return candidate.better_than(best, early.min_delta if early is not None else 0.0)


def epochs_of_refit(job: TrainJob, chosen: "FitFacts") -> int:
    """Return the epochs of a refit: all, or with early stopping as many as were selected."""
    if job.early_stopping is None:
        return job.epochs
    return chosen.epoch


LATEST = 4096
"""Steps that the median step time is over."""


@dataclass(frozen=True)
class Cursor:
    """The next thing to do: updates of `epoch` from the `done`th on.

    When `replaying` they are those of the epoch's repeated batches.
    """

    epoch: int = 0
    replaying: bool = False
    done: int = 0


@dataclass(kw_only=True)
class FitFacts:
    """The state of a training but its vector.

    `losses` (by batch) and `hits` are those of the present epoch.
    """

    first_id: int = 0
    epoch: int = 0
    selected: Figures | None = None
    epochs_done: int = 0
    scheduled: int = 0
    windows: int = 0
    train_seconds: float = 0.0
    cursor: Cursor = Cursor()
    losses: dict[int, float] = field(default_factory=dict)
    hits: float = 0.0
    staleness: StalenessCount = field(default_factory=StalenessCount)
    step_seconds: deque[float] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.step_seconds = deque(self.step_seconds, LATEST)

    def facts(self) -> dict[str, Any]:
        """Return everything but the vector, as JSON."""
        facts: dict[str, Any] = _FACTS.dump_python(self, mode="json")
        return facts

    def stopped(self, early: EarlyStopping | None, epochs: int) -> bool:
        """Return whether the fit ends before `epochs` epochs: its validation got no better."""
        if early is None or self.selected is None or self.epochs_done >= epochs:
            return False
        return self.epochs_done - self.epoch >= early.patience

    def throughput(self) -> dict[str, float | None]:
        """The entry of `result.json`."""
        return {
            "windows_per_second": (
                self.windows / self.train_seconds if self.windows and self.train_seconds else None
            ),
            "step_seconds_p50": statistics.median(self.step_seconds) if self.step_seconds else None,
        }


_FACTS = TypeAdapter(FitFacts)


@dataclass(kw_only=True)
class Fit(FitFacts):
    """The state of a training: `vector` is the selected epoch's, or the last one's.

    It is the last one's without validation.
    """

    vector: Vector

    @classmethod
    def of(cls, facts: dict[str, Any], vector: Vector) -> "Fit":
        """Return the fit of these `facts`.

        Raises TypeError or ValueError if they are not of this version.
        """
        names = {fact.name for fact in fields(FitFacts)}
        if facts.keys() != names:
            raise ValueError(
                f"expected the facts {', '.join(sorted(names))}, got {', '.join(sorted(facts))}"
            )
        return cls(vector=vector, **vars(_FACTS.validate_python(facts)))


MUCH = 5.0
"""A loss this many times that of guessing, and where it began, has risen much."""

RISEN = 1.5
"""A loss this many times the lowest so far has risen. Batches of one model differ by less."""

FALLING = 0.8
"""A loss below this share of what it was at the epoch's beginning falls."""

FIRST = 5
"""Batches whose lowest loss is where a training begins: with a rate too high the second one may be
far off."""


class DivergedError(ClusterError):
    """The loss is not finite, or rose far above that of guessing and stays there."""


def refuse_without_loss(figures: Figures) -> None:
    """Raise DivergedError if what was held out has no loss: then its other figures mean nothing."""
    if not isfinite(figures.loss):
        raise DivergedError(
            f"the loss over what was held out is {figures.loss}, although that of training is"
            " finite: look at the held-out data, the model and its loss"
        )


class LossCourse:
    """The course of one training's loss, epoch by epoch. A resumed training begins a new one."""

    def __init__(self, guessing: float) -> None:
        """`guessing` is the loss of a model that knows nothing."""
        self._guessing = guessing
        self._lowest = inf
        self._before = inf

    def diverged(self, losses: Sequence[float]) -> str | None:
        """Return what the loss did, if it rose and stays risen; None while it may come back.

        `losses` are those of an epoch's batches, in order. It has diverged when it is far above
        guessing and either far above its lowest and not falling, or above its lowest at the ends of
        two epochs and no lower in the second.
        """
        if lost := [loss for loss in losses if not isfinite(loss)]:
            return f"a loss is {lost[0]}"
        quarter = max(1, len(losses) // 4)
        first = statistics.fmean(losses[:quarter])
        last = statistics.fmean(losses[-quarter:])
        if self._lowest == inf:
            self._lowest = min(losses[:FIRST])
        lowest = self._lowest
        before = self._before
        high = last > MUCH * self._guessing and last > RISEN * lowest
        self._lowest = min(lowest, last)
        if high:
            self._before = last
        else:
            self._before = inf
        rose = high and last > MUCH * lowest and last > FALLING * first
        stays = high and last >= before
        if not (rose or stays):
            return None
        return (
            f"the loss rose from {lowest:.3g} to {last:.3g} and stays there; that of guessing is"
            f" {self._guessing:.3g}"
        )
