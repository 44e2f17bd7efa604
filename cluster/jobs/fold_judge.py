"""The figures of one fold of a cross-validation over the windows that it holds out."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cluster.jobs.cv_record import FoldScore, GroupScore
from cluster.jobs.divergence import refuse_without_loss
from cluster.jobs.evaluation import Evaluator
from core.data.split import Fold
from core.status.parts import Figures
from worker_node.recordings import Standardization


def judged(
    evaluator: Evaluator,
    fold: Fold,
    groups: NDArray[np.integer],
    standardization: Standardization,
    stop: Callable[[], bool],
) -> FoldScore | None:
    """Return the figures over the held-out windows, of each group by itself too.

    Raises DivergedError if their loss is not finite.

    `groups` has the group of each row. None once `stop()` is true. Seed, digest and seconds are the
    caller's.
    """
    whole = evaluator(fold.held_out, standardization, stop=stop, groups=groups)
    if stop() or whole.figures is None:
        return None
    refuse_without_loss(whole.figures)
    return FoldScore(
        seed=0,
        fold=fold.number,
        groups=tuple(_group_score(group, *whole.of_groups[group]) for group in fold.groups),
        train_windows=len(fold.train),
        windows=whole.examples,
        figures=whole.figures.describe(),
        confusion=tuple(tuple(map(int, row)) for row in whole.confusion),
        parameters_sha256="",
        seconds=0.0,
    )


def _group_score(group: int, examples: int, figures: Figures | None) -> GroupScore:
    if figures is None or figures.accuracy is None:
        return GroupScore(group, examples, None)
    return GroupScore(group, examples, round(figures.accuracy * examples))
