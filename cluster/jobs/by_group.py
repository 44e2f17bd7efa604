"""The figures of a test for each of its groups, such as a person."""

from collections.abc import Mapping, Sequence
from math import inf, isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.jobs.progress import Display
from cluster.jobs.train_result import describe_figures
from core.data import Dataset
from core.status.parts import Figures

MOST_GROUPS = 64
"""Groups of a test that get figures of their own: each takes a chunk at least."""

Groups = Mapping[int, tuple[int, Figures | None]]
"""Examples and figures of each group, by its number."""


def groups_of_test(dataset: Dataset) -> NDArray[np.int32] | None:
    """Return the group of each row; None where the test has one, too many, or some unknown."""
    groups = dataset.subjects()
    of_test = np.unique(groups[dataset.train_windows :])
    if 1 < len(of_test) <= MOST_GROUPS and of_test[0] >= 0:
        return groups
    return None


def describe_groups(groups: Groups, names: Sequence[str]) -> list[dict[str, Any]] | None:
    """Return the entry `by_group` of a result, worst first; null without groups.

    `names` are those of the groups by their numbers, as far as the source says them.
    """
    name_of = dict(enumerate(names))
    worst_first = sorted(groups.items(), key=lambda group: _how_well(group[1][1]))
    described = [
        {
            "group": name_of.get(number, str(number)),
            "examples": examples,
            **describe_figures(figures),
        }
        for number, (examples, figures) in worst_first
    ]
    return described or None


def line_of_groups(groups: Groups, by: str, names: Sequence[str]) -> str | None:
    """Return the worst and the best group in words; None without groups or accuracies."""
    described = describe_groups(groups, names)
    if not described or None in (entry["accuracy"] for entry in described):
        return None
    worst = described[0]
    best = described[-1]
    return (
        f"test by {by or 'person'}: worst {worst['group']} (accuracy {worst['accuracy']:.4f}), best"
        f" {best['group']} ({best['accuracy']:.4f})"
    )


def say_groups(groups: Groups, dataset: Dataset, display: Display) -> None:
    """Say how far apart the figures of the groups are."""
    line = line_of_groups(groups, dataset.held_out.by, dataset.held_out.groups)
    if line is not None:
        display.say(line)


def _how_well(figures: Figures | None) -> float:
    if figures is None or isnan(figures.loss):
        return -inf
    if figures.accuracy is None:
        return -figures.loss
    return figures.accuracy
