"""Which training rows are held out to choose the recipe by.

Whole people are, so no person is in both parts.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.data.recordings import NO_SUBJECT
from core.ground.errors import DataError

SHARE_WITHOUT_SUBJECTS = 0.2
"""The share of each class that is held out where the source does not say who was recorded.

It is about 4 subjects of 21.
"""

Rows = NDArray[np.int64]
KEY = "jobs.train.validation_subjects"
MOST_SHOWN = 20
"""Names of classes in a line."""


def split_validation(
    subjects: NDArray[np.int32],
    held_out: int | Sequence[int],
    seed: int,
    classes: NDArray[np.int32] | None = None,
) -> tuple[Rows, Rows]:
    """Row numbers (training, validation), both ascending, of the training rows' `subjects` (rows,).

    `held_out` is how many subjects (drawn by `seed`) or which; 0 and an empty list hold out none.
    Without subjects (all -1) any count but 0 holds out a fifth of the rows, of each class when
    `classes` (rows,) is given; overlapping windows then make validation look better than it is.
    Raises DataError when a subject does not exist, or less than two classes would be left to train
    on.
    """
    random = np.random.Generator(np.random.Philox(seed))
    if (subjects == NO_SUBJECT).all():
        chosen = _share_of_rows(len(subjects), held_out, classes, random)
    else:
        chosen = np.isin(subjects, _chosen_subjects(subjects, held_out, random))
    if len(subjects) and chosen.all():
        raise DataError(f"{KEY}: {held_out} would leave nothing to train on; hold out fewer")
    refuse_one_class(classes, ~chosen, KEY, "hold out fewer, or others")
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def refuse_one_class(
    classes: NDArray[np.int32] | None, chosen: NDArray[np.bool_], where: str, remedy: str
) -> None:
    """Raise DataError where the chosen of these rows have one class alone.

    Each row comes with its class.
    """
    if classes is None or not chosen.any():
        return
    chosen_classes = np.unique(classes[chosen])
    if len(chosen_classes) == 1:
        raise DataError(
            f"{where}: expected training rows of at least 2 classes, got class"
            f" {int(chosen_classes[0])} alone: a model of one class is always right; {remedy}"
        )


def held_out_whole(classes: NDArray[np.int32], training: Rows, labels: Sequence[str]) -> str:
    """Return a line about classes that the held-out rows alone have.

    It is empty where each class has a training row.
    """
    absent = sorted(set(classes.tolist()) - set(classes[training].tolist()))
    names = ", ".join(labels[number] for number in absent[:MOST_SHOWN])
    if absent:
        return (
            f"{KEY}: all rows of {names} are held out, so the model never sees them; hold out"
            " others"
        )
    return ""


def _chosen_subjects(
    subjects: NDArray[np.int32], held_out: int | Sequence[int], random: np.random.Generator
) -> list[int]:
    training_subjects = np.unique(subjects)
    if isinstance(held_out, int):
        if not 0 <= held_out < len(training_subjects):
            raise DataError(_too_many(len(training_subjects), held_out))
        return [int(subject) for subject in random.permutation(training_subjects)[:held_out]]
    unknown = sorted(set(held_out) - {int(subject) for subject in training_subjects})
    if unknown:
        raise DataError(
            f"{KEY}: {unknown[0]} is not a training subject; choose among "
            f"{', '.join(str(subject) for subject in training_subjects)}"
        )
    return list(held_out)


def _too_many(subject_count: int, held_out: int) -> str:
    if subject_count == 1:
        return (
            f"{KEY}: the training part has one subject, so none can be held out to choose the epoch"
            f" by, got {held_out}; set it to 0 (--set {KEY}=0), or add recordings of others"
        )
    return (
        f"{KEY}: expected 0 to {subject_count - 1} of the {subject_count} training subjects,"
        f" because one at least trains, got {held_out}; set it to {subject_count - 1} or less"
        f" (--set {KEY}={subject_count - 1}), or add recordings of others"
    )


def _share_of_rows(
    rows: int,
    held_out: int | Sequence[int],
    classes: NDArray[np.int32] | None,
    random: np.random.Generator,
) -> NDArray[np.bool_]:
    if not isinstance(held_out, int) and held_out:
        raise DataError(
            f"{KEY}: these recordings do not say who was recorded; give a count, not a list"
        )
    chosen = np.zeros(rows, dtype=np.bool_)
    if not held_out:
        return chosen
    if classes is None:
        groups = np.zeros(rows, dtype=np.int32)
    else:
        groups = classes
    for group in np.unique(groups):
        members = random.permutation(np.flatnonzero(groups == group))
        chosen[members[: round(SHARE_WITHOUT_SUBJECTS * len(members))]] = True
    return chosen
