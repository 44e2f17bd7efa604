"""Which examples of a test were taken for another class."""

from collections.abc import Sequence
from itertools import pairwise
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
    rows, named = rows[order], named[order]
    columns = (dataset.subjects()[rows], dataset.classes()[rows], named)
    of_wrong = np.stack([rows - dataset.train_windows, *columns])[:, columns[1] != named]
    breaks = np.flatnonzero((np.diff(of_wrong, axis=1) != [[1], [0], [0], [0]]).any(axis=0)) + 1
    ends = [0, *breaks.tolist(), of_wrong.shape[1]] if of_wrong.size else [0]
    return [
        _described(of_wrong[:, begin], of_wrong[0, end - 1], dataset)
        for begin, end in list(pairwise(ends))[:MOST_STRETCHES]
    ]


def _described(first: NDArray[np.int32], last: Any, dataset: Dataset) -> dict[str, Any]:
    place, person, true, named = first.tolist()
    return {
        "group": _name(dataset.held_out.groups, person),
        "first": place,
        "last": int(last),
        "true": dataset.labels[true],
        "predicted": dataset.labels[named],
    }


def _name(names: Sequence[str], number: int) -> str | None:
    if number < 0:
        return None
    return names[number] if number < len(names) else str(number)
