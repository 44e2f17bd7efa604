"""Which classes are mistaken for which.

A matrix of few classes, counts and the most frequent mistakes of many.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import nlargest

from core.status.parts import ClassCount, MixUp

LARGEST_MATRIX = 30
"""Classes of a confusion matrix that a person can read."""
MOST_COUNTED = 1000
"""Classes that are counted one by one."""
MOST_MIX_UPS = 20
LONGEST_LABEL = 100

Matrix = tuple[tuple[int, ...], ...]
"""Examples by true and predicted class."""


@dataclass(frozen=True)
class Classes:
    """What is kept of an evaluation by class: `labels` and `rows`, or the counts."""

    labels: tuple[str, ...] = ()
    rows: Matrix = ()
    counts: tuple[ClassCount, ...] = ()
    mix_ups: tuple[MixUp, ...] = ()


def by_class(
    labels: Sequence[str],
    rows: Sequence[Sequence[int]],
    counts: tuple[ClassCount, ...] = (),
    mix_ups: tuple[MixUp, ...] = (),
) -> Classes:
    """Return the matrix where a person can read it, else counts and the most frequent mistakes.

    `rows` has shape (labels, labels), rows the true class. Without rows `counts` and `mix_ups` stay
    as they are. Raises ValueError where the matrix has another shape.
    """
    if rows and {len(labels)} != {len(rows), *map(len, rows)}:
        raise ValueError(
            f"expected {len(labels)} rows and columns, got {[len(row) for row in rows]}"
        )
    if not rows:
        counted = tuple(replace(count, label=plain(count.label)) for count in counts[:MOST_COUNTED])
        return Classes(counts=counted, mix_ups=mix_ups[:MOST_MIX_UPS])
    labels = tuple(map(plain, labels))
    if len(rows) <= LARGEST_MATRIX:
        return Classes(labels, tuple(map(tuple, rows)))
    return Classes(counts=counts_of(labels, rows)[:MOST_COUNTED], mix_ups=mix_ups_of(labels, rows))


def plain(label: str) -> str:
    """Return the label as it can be written anywhere.

    A folder's name, and so a label, need not be UTF-8.
    """
    return label.encode("utf-8", "backslashreplace").decode()


def counts_of(labels: Sequence[str], rows: Sequence[Sequence[int]]) -> tuple[ClassCount, ...]:
    """Count each class; of more than `MOST_COUNTED` the one with the most examples is first."""
    true = [sum(row) for row in rows]
    predicted = [sum(column) for column in zip(*rows, strict=True)]
    places: Sequence[int] = range(len(labels))
    if len(labels) > MOST_COUNTED:
        places = sorted(places, key=lambda place: -true[place])
    return tuple(
        ClassCount(
            labels[at][:LONGEST_LABEL],
            rows[at][at],
            predicted[at] - rows[at][at],
            true[at] - rows[at][at],
        )
        for at in places
    )


def mix_ups_of(labels: Sequence[str], rows: Sequence[Sequence[int]]) -> tuple[MixUp, ...]:
    """The most frequent mistakes, the most frequent first."""
    mistakes = (
        (examples, -true, -predicted)
        for true, row in enumerate(rows)
        for predicted, examples in enumerate(row)
        if examples and predicted != true
    )
    return tuple(
        MixUp(labels[-true][:LONGEST_LABEL], labels[-predicted][:LONGEST_LABEL], examples)
        for examples, true, predicted in nlargest(MOST_MIX_UPS, mistakes)
    )
