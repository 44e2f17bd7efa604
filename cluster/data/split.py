"""Which training rows are held out to choose the recipe by: whole people, so no person is in both parts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cluster.data.recordings import NO_SUBJECT
from cluster.errors import DataError

SHARE_WITHOUT_SUBJECTS = 0.2
"""Of each class, where the source does not say who was recorded; about 4 subjects of 21."""

Rows = NDArray[np.int64]


def split_validation(
    subjects: NDArray[np.int32],
    held_out: int | Sequence[int],
    seed: int,
    classes: NDArray[np.int32] | None = None,
) -> tuple[Rows, Rows]:
    """Row numbers (training, validation), both ascending, of the training rows' `subjects` (rows,).

    `held_out` is how many subjects (drawn by `seed`) or which; 0 and an empty list hold out none. Without subjects
    (all -1) any count but 0 holds out a fifth of the rows, of each class when `classes` (rows,) is given; overlapping
    windows then make validation look better than it is. Raises DataError when a subject does not exist or none would
    be left to train on.
    """
    random = np.random.Generator(np.random.Philox(seed))
    if (subjects == NO_SUBJECT).all():
        chosen = _share_of_rows(len(subjects), held_out, classes, random)
    else:
        chosen = np.isin(subjects, _chosen_subjects(subjects, held_out, random))
    if len(subjects) and chosen.all():
        raise DataError(f"validation_subjects: {held_out} would leave nothing to train on; hold out fewer")
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def _chosen_subjects(
    subjects: NDArray[np.int32], held_out: int | Sequence[int], random: np.random.Generator
) -> list[int]:
    known = np.unique(subjects)
    if isinstance(held_out, int):
        if not 0 <= held_out < len(known):
            raise DataError(
                f"validation_subjects: expected 0 to {len(known) - 1} of the training subjects, got {held_out}"
            )
        return [int(subject) for subject in random.permutation(known)[:held_out]]
    unknown = sorted(set(held_out) - {int(subject) for subject in known})
    if unknown:
        raise DataError(
            f"validation_subjects: {unknown[0]} is not a training subject; choose among "
            f"{', '.join(str(subject) for subject in known)}"
        )
    return list(held_out)


def _share_of_rows(
    rows: int, held_out: int | Sequence[int], classes: NDArray[np.int32] | None, random: np.random.Generator
) -> NDArray[np.bool_]:
    if not isinstance(held_out, int) and held_out:
        raise DataError("validation_subjects: these recordings do not say who was recorded; give a count, not a list")
    chosen = np.zeros(rows, dtype=np.bool_)
    if not held_out:
        return chosen
    groups = np.zeros(rows, dtype=np.int32) if classes is None else classes
    for group in np.unique(groups):
        members = random.permutation(np.flatnonzero(groups == group))
        chosen[members[: round(SHARE_WITHOUT_SUBJECTS * len(members))]] = True
    return chosen
