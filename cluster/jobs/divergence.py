"""Whether a training diverges, by where its loss goes: a high loss that falls is learning."""

from collections.abc import Sequence
from math import inf, isfinite
from statistics import fmean

from core.ground.errors import ClusterError
from core.status.parts import Figures

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
