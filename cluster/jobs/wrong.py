"""Which examples of a test were taken for another class."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data import Dataset

MOST_STRETCHES = 1000
"""Entries of a result; more say no more to a person."""


def wrong_stretches(
    rows: NDArray[np.int32], named: NDArray[np.int32], dataset: Dataset
) -> list[dict[str, Any]] | None:
    """Return the entry `wrong` of a result, in the order of the test; null without classes.

    `rows` int32 (n,): rows of the data set, in any order; `named` int32 (n,): the class that each
    was taken for. Windows that follow each other and are wrong alike are one stretch.
    """
    if not len(named):
        return None
    order = np.argsort(rows)
    rows = rows[order]
    columns = [rows, dataset.subjects()[rows], dataset.classes()[rows], named[order]]
    of_wrong = np.stack(columns)[:, columns[2] != columns[3]]
    breaks = np.flatnonzero((np.diff(of_wrong, axis=1) != [[1], [0], [0], [0]]).any(axis=0)) + 1
    stretches = np.split(of_wrong, breaks, axis=1)[:MOST_STRETCHES]
    return [_described(stretch, dataset) for stretch in stretches if stretch.size]


def _described(stretch: NDArray[np.int32], dataset: Dataset) -> dict[str, Any]:
    first, person, true, named = stretch[:, 0].tolist()
    names = dict(enumerate(dataset.held_out.groups))
    return {
        "group": names.get(person, None if person < 0 else str(person)),
        "first": first - dataset.train_windows,
        "last": int(stretch[0, -1]) - dataset.train_windows,
        "true": dataset.labels[true],
        "predicted": dataset.labels[named],
    }
