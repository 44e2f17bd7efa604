"""Folds of cross-validation.

Exactly one holds out each group of the training rows, such as a person.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from core.data.recordings import NO_SUBJECT
from core.data.split import Rows, refuse_one_class
from core.ground.errors import DataError


@dataclass(frozen=True, eq=False)
class Fold:
    """`train` and `held_out` rows, ascending.

    `groups` are those held out, empty where the source knows none.
    """

    number: int
    groups: tuple[int, ...]
    train: Rows
    held_out: Rows


def folds_of(
    groups: NDArray[np.int32],
    folds: int | Literal["groups"],
    seed: int,
    classes: NDArray[np.int32] | None = None,
) -> list[Fold]:
    """Cut the training rows of `groups` (rows,) into folds of whole groups, drawn by `seed`.

    The folds are equal to within one group.

    `groups` leaves out one group at a time, in ascending order. Without groups (all -1) the folds
    are drawn from the rows, of each class when `classes` (rows,) is given; overlapping windows then
    make the figures look better than they are. Raises DataError for more folds than there are
    groups, or rows, and for a fold whose training rows have one class alone.
    """
    drawn_folds = _draw_folds(groups, folds, np.random.Generator(np.random.Philox(seed)), classes)
    for fold in drawn_folds:
        chosen = np.zeros(len(groups), np.bool_)
        chosen[fold.train] = True
        refuse_one_class(
            classes, chosen, f"jobs.cv.folds: fold {fold.number + 1}", "take more folds"
        )
    return drawn_folds


def _draw_folds(
    groups: NDArray[np.int32],
    folds: int | Literal["groups"],
    random: np.random.Generator,
    classes: NDArray[np.int32] | None,
) -> list[Fold]:
    if (groups == NO_SUBJECT).all():
        return _of_rows(len(groups), folds, classes, random)
    group_numbers = np.unique(groups)
    if folds == "groups":
        count = len(group_numbers)
    else:
        count = folds
    if not 2 <= count <= len(group_numbers):
        raise DataError(
            f"jobs.cv.folds: expected 2 to {len(group_numbers)}, one for each group of the training"
            f" rows at most, got {count}; take fewer folds, or recordings of more people"
        )
    if folds == "groups":
        drawn = group_numbers
    else:
        drawn = random.permutation(group_numbers)
    return [
        _fold(number, np.isin(groups, part), tuple(sorted(map(int, part))))
        for number, part in enumerate(np.array_split(drawn, count))
    ]


def _of_rows(
    rows: int,
    folds: int | Literal["groups"],
    classes: NDArray[np.int32] | None,
    random: np.random.Generator,
) -> list[Fold]:
    if folds == "groups":
        raise DataError(
            "jobs.cv.folds: expected a number, got groups; this source does not say whose each"
            " row is"
        )
    if rows < folds:
        raise DataError(
            f"jobs.cv.folds: expected at most {rows}, one for each training row, got {folds}; take"
            " fewer"
        )
    place = np.empty(rows, np.int64)
    of_class: Sequence[Rows] = [np.arange(rows)]
    if classes is not None:
        of_class = [np.flatnonzero(classes == class_number) for class_number in np.unique(classes)]
    dealt = 0
    for members in of_class:
        place[random.permutation(members)] = (np.arange(len(members)) + dealt) % folds
        dealt += len(members)
    return [_fold(number, place == number, ()) for number in range(folds)]


def _fold(number: int, held_out: NDArray[np.bool_], groups: tuple[int, ...]) -> Fold:
    return Fold(number, groups, np.flatnonzero(~held_out), np.flatnonzero(held_out))
