"""Which rows are held out: to choose the recipe by, in folds of cross-validation, or as the test.

Whole people are, so no person is in both parts; exactly one fold holds out each group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from core.data.arrays import Flags, Integers
from core.data.recordings import NO_SUBJECT
from core.ground.errors import DataError

SHARE_WITHOUT_SUBJECTS = 0.2
"""The share of each class that is held out where the source does not say who was recorded.

It is about 4 subjects of 21.
"""

Rows = NDArray[np.int64]
KEY = "jobs.train.validation_subjects"
MOST_CLASSES_SHOWN = 20
"""Names of classes in a line."""


def some_of(names: Sequence[str]) -> str:
    """The first `MOST_SHOWN` names, and how many more there are."""
    listing = ", ".join(names[:MOST_SHOWN])
    if len(names) > MOST_SHOWN:
        return f"{listing} and {len(names) - MOST_SHOWN} more"
    return listing


@dataclass(frozen=True)
class HeldOut:
    """How the test rows were chosen, as a reader says it; empty where none does.

    by: what stays whole, such as `user`, or `window` where nothing does; groups: names of the
    groups by their numbers in `subjects`; leak: why the figures of the test promise too much, empty
    where they do not; note: who and what was recorded, in words.
    """

    by: str = ""
    groups: tuple[str, ...] = ()
    leak: str = ""
    note: str = ""

    @classmethod
    def of(cls, fields: Any) -> "HeldOut":
        """Return what a manifest says, as JSON has it."""
        by, leak, note = (str(fields.get(name, "")) for name in ("by", "leak", "note"))
        return cls(by, tuple(str(name) for name in fields.get("groups", ())), leak, note)

    def lines(self) -> tuple[str, ...]:
        """Return a line for each fact that is stated."""
        lines = [self.note]
        if self.groups:
            numbered = [f"{number} {name}" for number, name in enumerate(self.groups)]
            lines.append(f"groups by {self.by}: {some_of(numbered)}")
        if self.leak:
            lines.append(f"LEAK: {self.leak}")
        return tuple(line for line in lines if line)


NOT_SAID = HeldOut()
MOST_SHOWN = 40
"""Names of groups in a line."""


def split_validation(
    subjects: Integers,
    held_out: int | Sequence[int],
    seed: int,
    classes: Integers | None = None,
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


def refuse_one_class(classes: Integers | None, chosen: Flags, where: str, remedy: str) -> None:
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


def held_out_whole(classes: Integers, training: Rows, labels: Sequence[str]) -> str:
    """Return a line about classes that the held-out rows alone have.

    It is empty where each class has a training row.
    """
    absent = sorted(set(classes.tolist()) - set(classes[training].tolist()))
    names = ", ".join(labels[number] for number in absent[:MOST_CLASSES_SHOWN])
    if absent:
        return (
            f"{KEY}: all rows of {names} are held out, so the model never sees them; hold out"
            " others"
        )
    return ""


def _chosen_subjects(
    subjects: Integers, held_out: int | Sequence[int], random: np.random.Generator
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
    classes: Integers | None,
    random: np.random.Generator,
) -> Flags:
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
    groups: Integers,
    folds: int | Literal["groups"],
    seed: int,
    classes: Integers | None = None,
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
    groups: Integers,
    folds: int | Literal["groups"],
    random: np.random.Generator,
    classes: Integers | None,
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
    classes: Integers | None,
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


def _fold(number: int, held_out: Flags, groups: tuple[int, ...]) -> Fold:
    return Fold(number, groups, np.flatnonzero(~held_out), np.flatnonzero(held_out))
