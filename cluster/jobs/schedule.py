"""The learning rate of each update of a training."""

from core.inventory.training_sections import Constant, OneCycle
from core.models.window_statistics import cosines_and_sines


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
