"""The updates of a training: their learning rates, their items, and whether the loss diverges.

The mode's policy grants the items of a stretch of updates. A training diverges by where its loss
goes: a high loss that falls is learning.
"""

import time
from collections.abc import Callable, Sequence
from math import inf, isfinite
from statistics import fmean

from cluster.jobs.fit import Update
from cluster.jobs.modes import ItemResult, Mode, Stretch
from core.consistency import Grant
from core.engine.workers import Item, Outcome
from core.ground.errors import ClusterError
from core.inventory.training_sections import Constant, OneCycle
from core.models.window_statistics import cosines_and_sines
from core.status.parts import PARTS, Figures


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


FIRST_STRETCH = 16
"""Updates of a fit's first stretch, from which the pace is learnt."""


def stretch_updates(
    updates_a_second: float | None, every_seconds: float, seconds_left: float
) -> int:
    """Return the updates of a stretch that ends just after the next checkpoint is due.

    None is an unknown pace. Workers wait for each other at its end, so it lasts a tenth of the time
    between two checkpoints at least.
    """
    if updates_a_second is None:
        return FIRST_STRETCH
    return 1 + int(updates_a_second * max(seconds_left, every_seconds / 10.0))


CLOCK_ERROR_SECONDS = 0.01
"""Excess of a call's parts over the call, at most: clocks run at slightly different rates."""


class WorkSource:
    """A `Source` over one stretch of updates. The policy grants what an idle worker may begin."""

    def __init__(
        self,
        mode: Mode,
        updates: Sequence[Update],
        stretch: Stretch,
        live: Callable[[], frozenset[int]],
    ) -> None:
        self._mode = mode
        self._stretch = stretch
        self._live = live
        self._updates = {update.id: update for update in updates}
        self._grants: dict[int, Grant] = {}
        self.begun: set[int] = set()
        """Updates of which something has been granted."""
        mode.policy.begin(range(updates[0].id, updates[-1].id + 1))

    def draw(self, task: int) -> Item | None:
        """Return the item that the worker `task` begins now, or None."""
        grant = self._mode.policy.draw(task, self._live(), time.monotonic())
        if grant is None:
            return None
        item = self._mode.item(grant, self._updates[grant.update], self._stretch)
        self._grants[item.id] = grant
        self.begun.add(grant.update)
        return item

    def exhausted(self) -> bool:
        """Whether no new item will ever come."""
        return self._mode.policy.exhausted()

    def withdrawn(self) -> list[int]:
        """Return ids of items whose outcome is no longer needed."""
        gone = set(self._mode.policy.withdrawn())
        if gone:
            return [identifier for identifier, grant in self._grants.items() if grant in gone]
        return []

    def read(self, outcome: Outcome) -> tuple[Update, ItemResult]:
        """Return what an outcome says, and which update it belongs to."""
        grant = self._grants.pop(outcome.item.id)
        update = self._updates[grant.update]
        return update, self._mode.read(grant, update, outcome, self._stretch)


def parts_of(seconds: tuple[float, float, float], whole: float) -> dict[str, float]:
    """Return seconds of pull, compute, push and wait of a call that took `whole` seconds.

    The mapping is empty where they cannot be true.

    A worker reads the first three off its clock of the day, which time synchronization sets, on a
    Pi by years.
    """
    measured = (
        all(0.0 <= part <= whole for part in seconds)
        and sum(seconds) <= whole + CLOCK_ERROR_SECONDS
    )
    if not measured:
        return {}
    return {**dict(zip(PARTS[:3], seconds, strict=True)), "wait": max(0.0, whole - sum(seconds))}


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
        first = fmean(losses[:quarter])
        last = fmean(losses[-quarter:])
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
